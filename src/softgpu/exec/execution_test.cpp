// How kernels run: divergence, barriers, warps, atomics, calls, memory spaces, faults, grid synchronisation.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "doctest/doctest.h"
#include "softgpu/exec/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::kHeader;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;

namespace {

// A kernel with one pointer parameter, loaded into %out; %tid and %gid hold the thread's place.
std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>, %tid, "
         "%gid, %n; .reg .b64 %x<20>, %out, %slot;\n"
         ".reg .f32 %f<8>;\n"
         "ld.param.u64 %out, [p]; cvta.to.global.u64 %out, %out; mov.u32 %tid, %tid.x; mov.u32 %n, %ntid.x;\n"
         "mad.lo.s32 %gid, %ctaid.x, %n, %tid; mad.wide.u32 %slot, %gid, 4, %out;\n" +
         body + "\nret;\n}\n";
}

std::vector<uint32_t> run(const std::string& text, uint32_t grid, uint32_t block, size_t results,
                          uint32_t dynamic = 0, bool cooperative = false) {
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  const LaunchResult result =
      machine.run({grid, 1, 1}, {block, 1, 1}, Parameters().add(machine.address(0)), 0, dynamic, cooperative);
  INFO(result.detail);
  REQUIRE(result.fault == Fault::none);
  return {machine.at<uint32_t>(0), machine.at<uint32_t>(0) + results};
}

LaunchResult fault_of(const std::string& text, uint32_t grid = 1, uint32_t block = 32) {
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  return machine.run({grid, 1, 1}, {block, 1, 1}, Parameters().add(machine.address(0)));
}

}  // namespace

TEST_CASE("lanes that loop for different times meet again") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    setp.ge.u32 %p1, %r1, %tid;
    @%p1 bra DONE;
    add.u32 %r2, %r2, %r1;
    add.u32 %r1, %r1, 1;
    bra LOOP;
  DONE:
    activemask.b32 %r3;
    popc.b32 %r3, %r3;
    shl.b32 %r3, %r3, 16;
    or.b32 %r2, %r2, %r3;
    st.global.u32 [%slot], %r2;)"),
                       1, 50, 50);
  for (uint32_t t = 0; t < 50; ++t) CHECK(out[t] == (t * (t - 1) / 2 | (t < 32 ? 32u : 18u) << 16));
}

TEST_CASE("an inner branch and an outer branch reconverge, predicated code leaves other lanes alone") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, 7;
    and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0;
    and.b32 %r2, %tid, 2; setp.eq.u32 %p2, %r2, 0;
    @%p1 bra EVEN;
    add.u32 %r1, %r1, 100;
    @!%p2 add.u32 %r1, %r1, 1000;
    bra.uni JOIN;
  EVEN:
    @%p2 bra JOIN;
    mul.lo.u32 %r1, %r1, 2;
  JOIN:
    st.global.u32 [%slot], %r1;)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(out[t] == (t % 2 == 0 ? (t & 2 ? 14u : 7u) : 107u + (t & 2 ? 1000u : 0u)));
  }
}

TEST_CASE("barriers order shared memory between warps") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 data[256];
    mov.u32 %r1, data; shl.b32 %r2, %tid, 2; add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %tid;
    bar.sync 0;
    sub.u32 %r4, 255, %tid; shl.b32 %r4, %r4, 2; add.u32 %r4, %r1, %r4;
    ld.shared.u32 %r5, [%r4];
    st.global.u32 [%slot], %r5;)"),
                       3, 256, 768);
  for (uint32_t t = 0; t < 768; ++t) CHECK(out[t] == 255 - t % 256);
}

TEST_CASE("barrier reductions, partial barriers, threads that left") {
  auto out = run(kernel(R"(
    setp.lt.u32 %p1, %tid, 40;
    bar.red.popc.u32 %r1, 0, %p1;
    bar.red.and.pred %p2, 0, %p1;
    barrier.cta.red.or.pred %p3, 1, %p1;
    selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 10000, 0, %p3;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    st.global.u32 [%slot], %r1;)"),
                 1, 70, 70);
  for (const uint32_t v : out) CHECK(v == 10040);
  out = run(kernel(R"(
    .shared .b32 flag;
    setp.ge.u32 %p1, %tid, 64;
    @%p1 exit;
    setp.lt.u32 %p2, %tid, 32;
    @%p2 bra CONSUME;
    mov.u32 %r1, 77; st.shared.u32 [flag], %r1;
    bar.arrive 3, 64;
    bra.uni END;
  CONSUME:
    bar.sync 3, 64;
    ld.shared.u32 %r2, [flag];
    st.global.u32 [%slot], %r2;
  END:
    bar.sync 0;)"),
            1, 128, 33);
  for (int t = 0; t < 32; ++t) CHECK(out[t] == 77);
  CHECK(out[32] == 0);
}

TEST_CASE("shuffles, votes, matches and reductions across a warp") {
  auto out = run(kernel(R"(
    shfl.sync.bfly.b32 %r1|%p1, %tid, 1, 0x1f, -1;
    shfl.sync.down.b32 %r2|%p2, %tid, 4, 0x1f, 0xffffffff;
    shfl.sync.up.b32 %r3, %tid, 1, 0, -1;
    shfl.sync.idx.b32 %r4, %tid, 5, 0x181f, -1;
    selp.u32 %r5, 1, 0, %p2;
    shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16; shl.b32 %r4, %r4, 24;
    or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4; shl.b32 %r5, %r5, 31; or.b32 %r1, %r1, %r5;
    st.global.u32 [%slot], %r1;)"),
                 1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t down = t + 4 < 32 ? t + 4 : t, up = t == 0 ? 0 : t - 1, index = (t & 24) | 5;
    CHECK(out[t] == ((t ^ 1) | down << 8 | up << 16 | index << 24 | (t + 4 < 32 ? 1u << 31 : 0)));
  }
  out = run(kernel(R"(
    setp.lt.u32 %p1, %tid, 3;
    vote.sync.ballot.b32 %r1, %p1, -1;
    vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;
    selp.u32 %r2, 16, 0, %p2; selp.u32 %r3, 32, 0, %p3;
    and.b32 %r4, %tid, 3;
    match.any.sync.b32 %r5, %r4, -1;
    popc.b32 %r5, %r5; shl.b32 %r5, %r5, 8;
    redux.sync.add.u32 %r6, %tid, -1; shl.b32 %r6, %r6, 16;
    or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r5; or.b32 %r1, %r1, %r6;
    st.global.u32 [%slot], %r1;)"),
            1, 32, 32);
  for (const uint32_t v : out) CHECK(v == (7 | 16 | 8 << 8 | 496 << 16));
}

TEST_CASE("groups of lanes with member masks of their own do not mix") {
  const auto out = run(kernel(R"(
    and.b32 %r1, %tid, 3;
    match.any.sync.b32 %r2, %r1, -1;
    redux.sync.add.u32 %r3, %tid, %r2;
    setp.lt.u32 %p1, %tid, 8;
    vote.sync.ballot.b32 %r4, %p1, %r2; popc.b32 %r4, %r4;
    setp.ne.u32 %p2, %r1, 0;
    mov.u32 %r5, 0;
    @%p2 redux.sync.max.s32 %r5, %tid, %r2;
    bar.warp.sync %r2;
    shl.b32 %r4, %r4, 16; shl.b32 %r5, %r5, 24;
    or.b32 %r3, %r3, %r4; or.b32 %r3, %r3, %r5;
    st.global.u32 [%slot], %r3;)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t group = t & 3, sum = 8 * group + 4 * 28, largest = group == 0 ? 0 : 28 + group;
    CHECK(out[t] == (sum | 2 << 16 | largest << 24));
  }
}

TEST_CASE("a shuffle waits for lanes that come by another way") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, 0;
    and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0;
    @%p1 bra LATE;
    mov.u32 %r1, 1;
    bra EXCHANGE;
  LATE:
    mov.u32 %r1, 2;
    bra BACK;
  EXCHANGE:
    shfl.sync.bfly.b32 %r3, %r1, 1, 0x1f, -1;
    st.global.u32 [%slot], %r3;
    bra END;
  BACK:
    bra EXCHANGE;
  END:)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(out[t] == (t % 2 == 0 ? 1 : 2));
}

TEST_CASE("atomics of many blocks lose nothing") {
  Machine machine(kernel(R"(
    atom.global.add.u32 %r1, [%out], 1;
    red.global.max.u32 [%out+4], %gid;
    red.global.add.f32 [%out+8], 0f3F800000;
    mov.u64 %x1, 3; atom.global.add.u64 %x2, [%out+16], %x1;
    atom.global.inc.u32 %r2, [%out+24], 9;
    atom.global.cas.b32 %r3, [%out+28], 0, 5;
    mul.wide.u32 %x3, %r1, 4; add.s64 %x3, %x3, %out;
    atom.global.exch.b32 %r4, [%x3+64], 1;)"));
  REQUIRE(machine.image != nullptr);
  const LaunchResult result = machine.run({100, 1, 1}, {100, 1, 1}, Parameters().add(machine.address(0)));
  REQUIRE(result.fault == Fault::none);
  CHECK(*machine.at<uint32_t>(0) == 10000);
  CHECK(*machine.at<uint32_t>(4) == 9999);
  CHECK(*machine.at<float>(8) == 10000.0f);
  CHECK(*machine.at<uint64_t>(16) == 30000);
  CHECK(*machine.at<uint32_t>(24) == 0);
  CHECK(*machine.at<uint32_t>(28) == 5);
  for (int i = 0; i < 10000; ++i) CHECK(*machine.at<uint32_t>(64 + 4 * i) == 1);
}

TEST_CASE("a spin lock between the lanes of a warp makes progress") {
  const auto out = run(kernel(R"(
  TRY:
    atom.global.cas.b32 %r1, [%out], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra TRY;
    ld.volatile.global.u32 %r2, [%out+4];
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%out+4], %r2;
    membar.gl;
    atom.global.exch.b32 %r3, [%out], 0;)"),
                       2, 64, 2);
  CHECK(out[0] == 0);
  CHECK(out[1] == 128);
}

TEST_CASE("functions: arguments, results, recursion, pointers to functions") {
  const std::string functions = R"(
.func (.param .b32 result) square(.param .b32 value)
{ .reg .b32 %a; ld.param.b32 %a, [value]; mul.lo.s32 %a, %a, %a; st.param.b32 [result], %a; ret; }
.func (.param .b32 result) sum_to(.param .b32 value)
{ .reg .b32 %a, %b; .reg .pred %p;
  ld.param.b32 %a, [value]; setp.eq.s32 %p, %a, 0; mov.u32 %b, 0; @%p bra OUT;
  { .param .b32 arg; .param .b32 back; sub.s32 %b, %a, 1; st.param.b32 [arg], %b; call.uni (back), sum_to, (arg); ld.param.b32 %b, [back]; }
  add.s32 %b, %b, %a;
OUT: st.param.b32 [result], %b; ret; }
.global .align 8 .u64 table[2] = {square, sum_to};
)";
  const auto out = run(kernel(R"(
    and.b32 %r1, %tid, 1; mul.wide.u32 %x1, %r1, 8; mov.u64 %x2, table; add.s64 %x2, %x2, %x1; ld.global.u64 %x3, [%x2];
    { .param .b32 arg; .param .b32 back; st.param.b32 [arg+0], %tid;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (back), %x3, (arg), proto;
      ld.param.b32 %r2, [back+0]; }
    st.global.u32 [%slot], %r2;)",
                              functions),
                       1, 40, 40);
  for (uint32_t t = 0; t < 40; ++t) CHECK(out[t] == (t % 2 == 0 ? t * t : t * (t + 1) / 2));
}

TEST_CASE("endless recursion is a stack overflow, a call to nowhere an illegal instruction") {
  const std::string f = ".func f() { call f; ret; }\n";
  CHECK(fault_of(kernel("call f;", f)).fault == Fault::stack_overflow);
  CHECK(fault_of(kernel("mov.u64 %x1, 12345; proto: .callprototype _ (); call %x1, (), proto;")).fault ==
        Fault::illegal_instruction);
}

TEST_CASE("local memory is each thread's own, by space and by generic address") {
  const auto out = run(kernel(R"(
    .local .align 8 .b8 depot[64];
    mov.u64 %x1, depot; cvta.local.u64 %x2, %x1;
    st.local.u32 [%x1+4], %tid;
    mul.lo.u32 %r1, %tid, 3; st.u32 [%x2+8], %r1;
    ld.u32 %r2, [%x2+4]; ld.local.u32 %r3, [depot+8]; add.u32 %r2, %r2, %r3;
    isspacep.local %p1, %x2; selp.u32 %r4, 1000, 0, %p1; add.u32 %r2, %r2, %r4;
    isspacep.global %p1, %x2; selp.u32 %r4, 5000, 0, %p1; add.u32 %r2, %r2, %r4;
    st.global.u32 [%slot], %r2;)"),
                       2, 64, 128);
  for (uint32_t t = 0; t < 128; ++t) CHECK(out[t] == t % 64 * 4 + 1000);
}

TEST_CASE("static and dynamic shared memory, generic addresses of shared memory") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b8 fixed[12];
    mov.u32 %r1, dynamic; shl.b32 %r2, %tid, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %tid;
    mov.u64 %x1, fixed; cvta.shared.u64 %x2, %x1; mov.u32 %r9, 9; st.u32 [%x2], %r9;
    bar.sync 0;
    mov.u64 %x3, dynamic; cvta.shared.u64 %x3, %x3; ld.u32 %r3, [%x3+124]; ld.shared.u32 %r4, [fixed];
    mov.u32 %r5, %dynamic_smem_size; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5;
    isspacep.shared %p1, %x3; selp.u32 %r4, 1000, 0, %p1; add.u32 %r3, %r3, %r4;
    st.global.u32 [%slot], %r3;)",
                              ".extern .shared .align 16 .b8 dynamic[];\n"),
                       1, 32, 32, 128);
  for (const uint32_t v : out) CHECK(v == 31 + 9 + 128 + 1000);
}

TEST_CASE("shared memory that is only declared, with a size, is there") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, declared; shl.b32 %r2, %tid, 2; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %tid; bar.sync 0;
    sub.u32 %r3, 124, %r2; add.u32 %r3, %r3, %r1; add.u32 %r3, %r3, %r1; ld.shared.u32 %r4, [%r3];
    st.global.u32 [%slot], %r4;)",
                              ".extern .shared .align 8 .b8 declared[128];\n"),
                       1, 32, 32, 0);
  for (uint32_t lane = 0; lane < 32; ++lane) CHECK(out[lane] == 31 - lane);
}

TEST_CASE("global variables with initial values and addresses of each other") {
  Machine machine(kernel(
      R"(
    ld.global.u64 %x1, [pointer]; ld.global.u32 %r1, [%x1]; ld.const.f32 %f1, [numbers+4]; cvt.rzi.u32.f32 %r2, %f1;
    ld.global.u8 %r3, [bytes+1]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; st.global.u32 [%slot], %r1;)",
      ".visible .global .align 4 .u32 values[3] = {10, 20, 30};\n.global .u64 pointer = generic(values)+8;\n"
      ".const .align 4 .f32 numbers[2] = {0f3F800000, 0f40A00000};\n.global .align 1 .b8 bytes[4] = {1, "
      "200};\n"));
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  CHECK(machine.run({1, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
  CHECK(*machine.at<uint32_t>(0) == 30 + 5 + 200);
  CHECK(machine.image->global("values")->size == 12);
  CHECK_FALSE(machine.image->global("nothing"));
}

TEST_CASE("vector loads and stores, indexed branches, asynchronous copies") {
  auto out = run(kernel(R"(
    shl.b32 %r1, %tid, 2; mov.u32 %r2, 5; add.u32 %r3, %r1, 2;
    mul.wide.u32 %x1, %tid, 16; add.s64 %x1, %x1, %out;
    st.global.v4.u32 [%x1], {%r1, %r2, %r3, %tid};
    ld.global.v2.u32 {%r5, %r6}, [%x1+8];
    add.u32 %r5, %r5, %r6; st.global.u32 [%x1+4], { %r5 };
    ld.global.b32 { %r7 }, [%x1+8]; st.global.b32 [%x1+12], {%r7};)"),
                 1, 32, 128);
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(out[4 * t] == 4 * t);
    CHECK(out[4 * t + 1] == 5 * t + 2);
    CHECK(out[4 * t + 3] == 4 * t + 2);
  }
  out = run(kernel(R"(
    targets: .branchtargets A, B, C;
    rem.u32 %r1, %tid, 3;
    brx.idx %r1, targets;
  A: mov.u32 %r2, 100; bra END;
  B: mov.u32 %r2, 200; bra END;
  C: mov.u32 %r2, 300;
  END: st.global.u32 [%slot], %r2;)"),
            1, 64, 64);
  for (uint32_t t = 0; t < 64; ++t) CHECK(out[t] == 100 * (t % 3 + 1));
  out = run(kernel(R"(
    .shared .align 16 .b8 buffer[512];
    st.global.u32 [%slot+1024], %tid;
    mov.u32 %r1, buffer; shl.b32 %r2, %tid, 2; add.u32 %r1, %r1, %r2;
    cp.async.ca.shared.global [%r1], [%slot+1024], 4;
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    ld.shared.u32 %r3, [%r1]; st.global.u32 [%slot], %r3;)"),
            1, 64, 64);
  for (uint32_t t = 0; t < 64; ++t) CHECK(out[t] == t);
}

TEST_CASE("mbarrier counts phases") {
  const auto out = run(kernel(R"(
    .shared .align 8 .b64 gate; .shared .b32 data;
    setp.ne.u32 %p1, %tid, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [gate], 64;
  READY:
    bar.sync 0;
    setp.ne.u32 %p1, %tid, 63;
    @%p1 bra ARRIVE;
    mov.u32 %r1, 42; st.shared.u32 [data], %r1;
  ARRIVE:
    mbarrier.arrive.shared.b64 %x1, [gate];
  WAIT:
    mbarrier.test_wait.shared.b64 %p2, [gate], %x1;
    @!%p2 bra WAIT;
    ld.shared.u32 %r2, [data]; st.global.u32 [%slot], %r2;)"),
                       1, 64, 64);
  for (const uint32_t v : out) CHECK(v == 42);
}

TEST_CASE("all blocks of a cooperative launch meet at the grid barrier") {
  const std::string externs =
      ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 s);\n"
      ".extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 h, .param .b32 f);\n";
  const std::string text = kernel(R"(
    red.global.add.u32 [%out+65536], 1;
    { .param .b32 a; .param .b64 r; mov.u32 %r1, 1; st.param.b32 [a], %r1; call.uni (r), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %x1, [r]; }
    { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %x1; mov.u32 %r1, 0; st.param.b32 [b], %r1; call.uni (r), cudaCGSynchronize, (a, b); }
    ld.global.u32 %r2, [%out+65536]; st.global.u32 [%slot], %r2;)",
                                  externs);
  const auto out = run(text, 40, 64, 40 * 64, 0, true);
  for (const uint32_t v : out) CHECK(v == 40 * 64);
  Machine machine(text);
  CHECK(machine.image->program().kernels()[0].uses_grid_sync);
  CHECK(machine.run({2, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0))).fault ==
        Fault::illegal_instruction);
}

TEST_CASE("a block may wait for one that comes later") {
  // Block 0 spins until the last block has written.
  const auto out = run(kernel(R"(
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra WRITE;
  SPIN:
    ld.volatile.global.u32 %r2, [%out+4096]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
    st.global.u32 [%out], %r2; bra END;
  WRITE:
    setp.ne.u32 %p1, %r1, 5; @%p1 bra END;
    mov.u32 %r3, 9; st.volatile.global.u32 [%out+4096], %r3;
  END:)"),
                       6, 1, 1);
  CHECK(out[0] == 9);
}

TEST_CASE("printf, assert, heap") {
  const std::string data =
      ".global .align 1 .b8 format[20] = {37, 100, 58, 37, 46, 50, 102, 58, 37, 115, 10, 0};\n"
      ".global .align 1 .b8 word[4] = {97, 98, 99, 0};\n"
      ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
      ".extern .func (.param .b64 r) malloc (.param .b64 a);\n"
      ".extern .func free (.param .b64 a);\n"
      ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 "
      "e);\n";
  Machine machine(kernel(R"(
    .local .align 8 .b8 args[24];
    mov.u64 %x1, args; cvta.local.u64 %x1, %x1; st.u32 [%x1], %tid; mov.b64 %x2, 0d3FF8000000000000; st.u64 [%x1+8], %x2;
    mov.u64 %x3, word; cvta.global.u64 %x3, %x3; st.u64 [%x1+16], %x3; mov.u64 %x4, format; cvta.global.u64 %x4, %x4;
    { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %x4; st.param.b64 [b], %x1; call.uni (r), vprintf, (a, b); })",
                         data),
                  1);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  CHECK(machine.run({1, 1, 1}, {2, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
  CHECK(machine.printed == "0:1.50:abc\n1:1.50:abc\n");
  const LaunchResult failed = fault_of(kernel(R"(
    setp.ne.u32 %p1, %tid, 7; @%p1 exit; mov.u64 %x1, word; mov.u32 %r1, 12;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
      st.param.b64 [a], %x1; st.param.b64 [b], %x1; st.param.b32 [c], %r1; st.param.b64 [d], %x1; st.param.b64 [e], 1;
      call.uni __assertfail, (a, b, c, d, e); })",
                                              data));
  CHECK(failed.fault == Fault::assert_failed);
  CHECK(failed.detail.find("abc:12: abc: assertion `abc` failed") != std::string::npos);
  CHECK(failed.detail.find("thread (7, 0, 0)") != std::string::npos);
}

TEST_CASE("faults name the address, the kernel and the thread") {
  LaunchResult r = fault_of(kernel("mov.u64 %x1, 64; ld.global.u32 %r1, [%x1]; st.global.u32 [%slot], %r1;"));
  CHECK(r.fault == Fault::illegal_address);
  CHECK(r.detail.find("0x40 (kernel k, block (0, 0, 0), thread (0, 0, 0)") != std::string::npos);
  r =
      fault_of(kernel("setp.ne.u32 %p1, %tid, 9; add.s64 %x1, %slot, 1; @%p1 mov.u64 %x1, %slot; "
                      "st.global.u32 [%x1], %tid;"));
  CHECK(r.fault == Fault::misaligned_address);
  CHECK(r.detail.find("thread (9, 0, 0)") != std::string::npos);
  CHECK(fault_of(kernel(".shared .b32 s; st.shared.u32 [s+4], %tid;")).fault == Fault::illegal_address);
  CHECK(fault_of(kernel(".local .b32 l; mov.u64 %x1, 4096; ld.local.u32 %r1, [%x1]; st.local.u32 [l], %r1;"))
            .fault == Fault::illegal_address);
  CHECK(fault_of(kernel("trap;")).fault == Fault::trap);
  CHECK(fault_of(kernel("brkpt;")).fault == Fault::illegal_instruction);
  CHECK(
      fault_of(kernel("setp.eq.u32 %p1, %tid, 0; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B:")).fault ==
      Fault::timeout);
}

TEST_CASE("memory that the driver has unmapped inside the arena faults instead of ending the process") {
  Machine machine(kernel("st.global.u32 [%slot+8192], %tid;"));
  REQUIRE(machine.image != nullptr);
  REQUIRE(mprotect(machine.arena + 8192, 4096, PROT_NONE) == 0);
  for (int i = 0; i < 3; ++i) {
    const LaunchResult r = machine.run({4, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0)));
    CHECK(r.fault == Fault::illegal_address);
    CHECK(r.detail.find("kernel k") != std::string::npos);
  }
  mprotect(machine.arena + 8192, 4096, PROT_READ | PROT_WRITE);
  CHECK(machine.run({4, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
}

TEST_CASE("memory outside the arena is asked for") {
  std::vector<uint32_t> host(64);
  Machine machine(kernel("st.global.u32 [%slot], %gid;"));
  machine.extra_memory = [&](uint64_t address, size_t size) {
    const auto begin = reinterpret_cast<uint64_t>(host.data());
    return address >= begin && address + size <= begin + 256;
  };
  const auto place = reinterpret_cast<uint64_t>(host.data());
  CHECK(machine.run({2, 1, 1}, {32, 1, 1}, Parameters().add(place)).fault == Fault::none);
  CHECK(host[63] == 63);
  CHECK(machine.run({3, 1, 1}, {32, 1, 1}, Parameters().add(place)).fault == Fault::illegal_address);
}

TEST_CASE("launches that cannot be are refused") {
  Machine machine(kernel("st.global.u32 [%slot], %gid;"));
  CHECK(machine.run({1, 1, 1}, {1025, 1, 1}, Parameters().add(machine.address(0))).fault ==
        Fault::launch_out_of_resources);
  CHECK(machine.run({0, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))).fault ==
        Fault::launch_out_of_resources);
  CHECK(machine.run({1, 1, 1}, {1, 1, 1}, Parameters()).fault == Fault::launch_out_of_resources);
}

TEST_CASE("an endless kernel can be cancelled") {
  Machine machine(kernel("LOOP: bra LOOP;"));
  std::atomic<bool> cancel{false};
  Launch launch;
  launch.image = machine.image.get();
  const Parameters parameters = Parameters().add(machine.address(0));
  launch.parameters = parameters.bytes();
  launch.cancel = &cancel;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancel = true;
  });
  CHECK(machine.executor.run(launch, {}, {}).fault == Fault::timeout);
  canceller.join();
}

TEST_CASE("three-dimensional blocks and grids number their threads as CUDA does") {
  Machine machine(kernel(R"(
    mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;
    mov.u32 %r5, %ntid.x; mov.u32 %r6, %ntid.y; mad.lo.s32 %r7, %r2, %r6, %r1; mad.lo.s32 %r7, %r7, %r5, %tid;
    mov.u32 %r8, %warpid; shl.b32 %r8, %r8, 5; mov.u32 %r9, %laneid; add.u32 %r8, %r8, %r9; sub.u32 %r10, %r7, %r8;
    mad.lo.s32 %r11, %r4, 2, %r3; mul.lo.s32 %r11, %r11, 24; add.s32 %r11, %r11, %r7; mul.wide.s32 %x1, %r11, 4; add.s64 %x1, %x1, %out;
    add.u32 %r12, %r11, %r10; st.global.u32 [%x1], %r12;)"));
  CHECK(machine.run({1, 2, 3}, {2, 3, 4}, Parameters().add(machine.address(0))).fault == Fault::none);
  for (uint32_t i = 0; i < 144; ++i) CHECK(*machine.at<uint32_t>(4 * i) == i);
}

TEST_CASE("ldmatrix and mma multiply matrices of halves") {
  // A (16 x 16) and B (16 x 8) row by row in shared memory, loaded as the manual's examples do it.
  const std::string text = kernel(R"(
    .shared .align 16 .b8 a[512]; .shared .align 16 .b8 b[256];
    mul.wide.u32 %x1, %tid, 16; add.s64 %x1, %x1, %out; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%x1];
    mov.u32 %r5, a; shl.b32 %r6, %tid, 4; add.u32 %r5, %r5, %r6; st.shared.v4.u32 [%r5], {%r1, %r2, %r3, %r4};
    setp.lt.u32 %p1, %tid, 16; mov.u32 %r7, b; add.u32 %r7, %r7, %r6;
    @%p1 ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%x1+512];
    @%p1 st.shared.v4.u32 [%r7], {%r1, %r2, %r3, %r4};
    bar.warp.sync -1;
    mov.u32 %r5, a; and.b32 %r6, %tid, 15; shl.b32 %r6, %r6, 5; add.u32 %r5, %r5, %r6;
    shr.u32 %r6, %tid, 4; shl.b32 %r6, %r6, 4; add.u32 %r5, %r5, %r6;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];
    mov.u32 %r7, b; and.b32 %r6, %tid, 15; shl.b32 %r6, %r6, 4; add.u32 %r7, %r7, %r6;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r7];
    mov.f32 %f0, 0f3F800000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f0, %f0, %f0};
    shr.u32 %r8, %tid, 2; and.b32 %r9, %tid, 3; shl.b32 %r8, %r8, 5; shl.b32 %r9, %r9, 3; add.u32 %r8, %r8, %r9;
    cvt.u64.u32 %x2, %r8; add.s64 %x2, %x2, %out;
    st.global.v2.f32 [%x2+1024], {%f1, %f2}; st.global.v2.f32 [%x2+1280], {%f3, %f4};)");
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  // Small integers as halves: n = 1.f * 2^e, exact.
  auto half = [](int n) -> uint16_t {
    if (n == 0) return 0;
    const auto magnitude = static_cast<uint32_t>(n < 0 ? -n : n);
    const auto top = static_cast<uint32_t>(std::bit_width(magnitude)) - 1;
    return static_cast<uint16_t>((n < 0 ? 0x8000u : 0u) | (top + 15) << 10 |
                                 (magnitude << (10 - top) & 0x3ffu));
  };
  int a[16][16], b[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k)
      machine.at<uint16_t>(0)[16 * i + k] = half(a[i][k] = (i * 7 + k * 3) % 19 - 9);
    for (int j = 0; j < 8; ++j)
      machine.at<uint16_t>(512)[8 * i + j] = half(b[i][j] = (i * 5 + j * 11) % 13 - 6);
  }
  const LaunchResult result = machine.run({1, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0)));
  INFO(result.detail);
  REQUIRE(result.fault == Fault::none);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      int want = 1;
      for (int k = 0; k < 16; ++k) want += a[i][k] * b[k][j];
      CHECK(machine.at<float>(1024)[8 * i + j] == static_cast<float>(want));
    }
  }
}
