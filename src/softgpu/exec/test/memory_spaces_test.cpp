// Local, shared and global memory, and the copies between them.
#include <utility>

#include "softgpu/exec/program/lowered.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::fault_of;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::run;

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

TEST_CASE("parameters are chosen among by their addresses, of 32 and of 64 bits") {
  const std::string text = softgpu::testing::ptx_header + R"(
.func (.param .b32 result) second_if(.param .b32 a, .param .b32 b, .param .b32 second)
{ .reg .pred %p; .reg .b32 %r<5>;
  ld.param.b32 %r1, [second]; setp.ne.b32 %p, %r1, 0;
  mov.b32 %r2, a; mov.b32 %r3, b; selp.b32 %r4, %r3, %r2, %p;
  ld.param.b32 %r4, [%r4]; st.param.b32 [result], %r4; ret; }
.visible .entry k(.param .u64 to, .param .u64 even, .param .align 8 .b8 odd[16])
{ .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %x<9>;
  ld.param.u64 %x1, [to]; mov.u32 %r1, %tid.x; mul.wide.u32 %x2, %r1, 32; add.u64 %x1, %x1, %x2;
  and.b32 %r2, %r1, 1; setp.ne.b32 %p, %r2, 0;
  mov.b32 %r3, even; mov.b32 %r4, odd; selp.b32 %r5, %r4, %r3, %p;
  ld.param.b64 %x3, [%r5]; st.global.u64 [%x1], %x3;
  @%p ld.param.b64 %x3, [%r5+8]; st.global.u64 [%x1+8], %x3;
  cvt.u64.u32 %x4, %r5; cvta.param.u64 %x4, %x4; ld.u64 %x4, [%x4]; st.global.u64 [%x1+16], %x4;
  mov.b64 %x5, even; mov.b64 %x6, odd; selp.b64 %x7, %x6, %x5, %p; cvta.param.u64 %x7, %x7; ld.u32 %r6, [%x7];
  { .param .b32 a; .param .b32 b; .param .b32 second; .param .b32 back;
    st.param.b32 [a], %r6; st.param.b32 [b], 77; st.param.b32 [second], %r2;
    call.uni (back), second_if, (a, b, second); ld.param.b32 %r7, [back]; }
  st.global.u32 [%x1+24], %r6; st.global.u32 [%x1+28], %r7;
  ret; }
)";
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  const LaunchResult result = machine.run({1, 1, 1}, {64, 1, 1},
                                          Parameters()
                                              .add(machine.address(0))
                                              .add(uint64_t{0x111100002222})
                                              .add(uint64_t{0x333300004444})
                                              .add(uint64_t{0x5555}));
  REQUIRE(result.fault == Fault::none);
  for (uint32_t t = 0; t < 64; ++t) {
    const bool odd = t % 2 != 0;
    const uint64_t chosen = odd ? 0x333300004444 : 0x111100002222;
    CHECK(*machine.at<uint64_t>(t * 32) == chosen);
    CHECK(*machine.at<uint64_t>(t * 32 + 8) == (odd ? 0x5555 : chosen));
    CHECK(*machine.at<uint64_t>(t * 32 + 16) == chosen);
    CHECK(*machine.at<uint32_t>(t * 32 + 24) == static_cast<uint32_t>(chosen));
    CHECK(*machine.at<uint32_t>(t * 32 + 28) == (odd ? 77 : static_cast<uint32_t>(chosen)));
  }
}

// A kernel with a structure as its second parameter, 8 to 40 in the buffer.
static std::string reads_structure(const std::string& body) {
  return softgpu::testing::ptx_header + R"(
.visible .entry k(.param .u64 to, .param .align 8 .b8 s[32])
{ .reg .pred %p; .reg .b16 %h<5>; .reg .b32 %r<9>; .reg .b64 %x<9>;
  ld.param.u64 %x1, [to]; mov.u32 %r1, %tid.x; mul.wide.u32 %x2, %r1, 32; add.u64 %x1, %x1, %x2;
  and.b32 %r2, %r1, 1; setp.ne.b32 %p, %r2, 0;
)" + body +
         "\n  ret; }\n";
}

static Parameters structure_at(uint64_t to) {
  return Parameters()
      .add(to)
      .add(uint64_t{0x00000001fffffffe})
      .add(uint64_t{0x333300004444})
      .add(uint64_t{0x5555000066f7})
      .add(uint64_t{0x77});
}

// Reads of memory that are left in the kernel.
static int reads_left(const Machine& machine) {
  int found = 0;
  for (const LoweredInstruction& in : machine.compiled.program->parts().functions[0].lowered->code)
    found += in.opcode.starts_with("@load.") || in.opcode.starts_with("@vload.") ? 1 : 0;
  return found;
}

TEST_CASE("a parameter read at a known distance from its address is a constant") {
  Machine machine(reads_structure(R"(
  mov.b64 %x3, s; mov.b64 %x4, %x3; add.s64 %x5, %x4, 8;
  ld.param.s8 %h1, [%x5+8]; cvt.s32.s16 %r3, %h1; st.global.u32 [%x1], %r3;
  ld.param.v2.u32 {%r4, %r5}, [%x4]; st.global.v2.u32 [%x1+8], {%r4, %r5};
  mov.u64 %x6, 1;
  @%p ld.param.u64 %x6, [%x5]; st.global.u64 [%x1+16], %x6;
  mov.u32 %r6, 0; mov.u32 %r7, 0;
AGAIN:
  add.s64 %x7, %x3, 24; ld.param.u32 %r8, [%x7]; add.u32 %r6, %r6, %r8; add.u32 %r7, %r7, 1;
  setp.le.u32 %p, %r7, %r2; @%p bra AGAIN;
  st.global.u32 [%x1+24], %r6;)"));
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  CHECK(reads_left(machine) == 0);
  REQUIRE(machine.run({1, 1, 1}, {64, 1, 1}, structure_at(machine.address(0))).fault == Fault::none);
  for (uint32_t t = 0; t < 64; ++t) {
    CHECK(*machine.at<int32_t>(t * 32) == -9);
    CHECK(*machine.at<uint32_t>(t * 32 + 8) == 0xfffffffe);
    CHECK(*machine.at<uint32_t>(t * 32 + 12) == 1);
    CHECK(*machine.at<uint64_t>(t * 32 + 16) == (t % 2 != 0 ? 0x333300004444 : 1));
    CHECK(*machine.at<uint32_t>(t * 32 + 24) == 0x77 * (1 + t % 2));
  }
}

TEST_CASE("an address of a parameter that is written twice is read as memory") {
  Machine machine(reads_structure(R"(
  mov.b64 %x3, s; @%p mov.b64 %x3, to; ld.param.u64 %x4, [%x3+8]; st.global.u64 [%x1], %x4;)"));
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  CHECK(reads_left(machine) == 1);
  REQUIRE(machine.run({1, 1, 1}, {64, 1, 1}, structure_at(machine.address(0))).fault == Fault::none);
  for (uint32_t t = 0; t < 64; ++t)
    CHECK(*machine.at<uint64_t>(t * 32) == (t % 2 != 0 ? 0x1fffffffe : 0x333300004444));
}

TEST_CASE("a misaligned read of a parameter, and one far beyond them, stay faults") {
  for (const auto& [offset, fault] :
       {std::pair{"2", Fault::misaligned_address}, std::pair{"0x0800000000000000", Fault::illegal_address}}) {
    Machine machine(reads_structure("  mov.b64 %x3, s; add.s64 %x4, %x3, " + std::string(offset) +
                                    "; ld.param.u32 %r3, [%x4]; st.global.u32 [%x1], %r3;"));
    INFO(machine.compiled.log);
    REQUIRE(machine.image != nullptr);
    CHECK(machine.run({1, 1, 1}, {64, 1, 1}, structure_at(machine.address(0))).fault == fault);
  }
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

TEST_CASE("the space of a generic address") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b8 tile[4]; .local .align 4 .b8 own[4]; mov.u32 %r3, 0;
    mov.u64 %x1, numbers; cvta.const.u64 %x1, %x1; add.u64 %x1, %x1, 4; isspacep.const %p1, %x1; isspacep.global %p2, %x1;
    selp.u32 %r1, 1, 0, %p1; add.u32 %r3, %r3, %r1; selp.u32 %r1, 10, 0, %p2; add.u32 %r3, %r3, %r1;
    add.u64 %x1, %x1, 4; isspacep.const %p1, %x1; selp.u32 %r1, 100, 0, %p1; add.u32 %r3, %r3, %r1;
    mov.u64 %x1, counter; isspacep.const %p1, %x1; isspacep.global %p2, %x1;
    selp.u32 %r1, 1000, 0, %p1; add.u32 %r3, %r3, %r1; selp.u32 %r1, 10000, 0, %p2; add.u32 %r3, %r3, %r1;
    cvta.shared.u64 %x1, 0; isspacep.shared %p1, %x1; cvta.local.u64 %x2, 0; isspacep.local %p2, %x2;
    selp.u32 %r1, 100000, 0, %p1; add.u32 %r3, %r3, %r1; selp.u32 %r1, 1000000, 0, %p2; add.u32 %r3, %r3, %r1;
    st.shared.u32 [tile], %r1; st.local.u32 [own], %r1; st.global.u32 [%slot], %r3;)",
                              ".const .align 4 .b32 numbers[2] = {1, 2};\n.global .align 4 .b32 counter;\n"),
                       1, 1, 1);
  CHECK(out[0] == 1110001);
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

TEST_CASE("a shared variable of no bytes has an address") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 before; .shared .align 4 .b8 empty[0];
    mov.u32 %r1, before; mov.u32 %r2, empty; sub.u32 %r2, %r2, %r1; st.global.u32 [%slot], %r2;)"),
                       1, 1, 1);
  CHECK(out[0] == 4);
  CHECK(fault_of(
            kernel(".shared .align 4 .b8 empty[0]; ld.shared.u8 %r1, [empty]; st.global.u32 [%slot], %r1;"))
            .fault == Fault::illegal_address);
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

TEST_CASE("the address of an element") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 tile[64]; .local .align 8 .b64 own[4]; .shared .align 4 .b8 bytes[8];
    mov.u32 %r1, tile[3]; mov.u32 %r2, tile; sub.u32 %r1, %r1, %r2;
    mov.u64 %x1, tile[5]+8; mov.u64 %x2, tile; sub.u64 %x1, %x1, %x2; cvt.u32.u64 %r3, %x1;
    mov.u64 %x1, pairs[2+1]; mov.u64 %x2, pairs; sub.u64 %x1, %x1, %x2; cvt.u32.u64 %r4, %x1;
    mov.u64 %x1, own[2]; mov.u64 %x2, own; sub.u64 %x1, %x1, %x2; cvt.u32.u64 %r5, %x1;
    mov.u32 %r6, bytes[7]; mov.u32 %r7, bytes; sub.u32 %r6, %r6, %r7;
    ld.global.f32 %f1, [pairs[1]+4]; cvt.rzi.u32.f32 %r7, %f1;
    { .shared .align 8 .b64 tile[2]; mov.u32 %r8, tile[1]; mov.u32 %r9, tile; sub.u32 %r8, %r8, %r9; }
    st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r3; st.global.u32 [%out+8], %r4;
    st.global.u32 [%out+12], %r5; st.global.u32 [%out+16], %r6; st.global.u32 [%out+20], %r7;
    st.global.u32 [%out+24], %r8;)",
                              ".global .align 8 .v2 .f32 pairs[4] = {0.0, 1.0, 2.0, 3.0};\n"),
                       1, 1, 7);
  const uint32_t expected[] = {12, 28, 24, 16, 7, 3, 8};
  for (size_t i = 0; i < std::size(expected); ++i) CHECK(out[i] == expected[i]);
}

TEST_CASE("local variables begin at a multiple of their alignment, in functions too") {
  const auto out = run(kernel(R"(
    .local .align 4 .b32 word; .local .align 128 .b8 own[100]; .param .align 4 .b32 result;
    mov.u64 %x1, own; cvta.local.u64 %x2, %x1; or.b64 %x1, %x1, %x2; and.b64 %x1, %x1, 127; cvt.u32.u64 %r1, %x1;
    call (result), f, (); ld.param.b32 %r2, [result]; or.b32 %r1, %r1, %r2;
    mov.u64 %x3, word; st.local.u32 [%x3], %tid; ld.local.u32 %r3, [word]; sub.u32 %r3, %r3, %tid;
    or.b32 %r1, %r1, %r3; st.global.u32 [%slot], %r1;)",
                              R"(
.func (.param .align 4 .b32 r) f()
{
  .reg .b64 %x<3>; .reg .b32 %r; .local .align 8192 .b8 far[20000];
  mov.u64 %x1, far; cvta.local.u64 %x2, %x1; or.b64 %x1, %x1, %x2; and.b64 %x1, %x1, 8191; cvt.u32.u64 %r, %x1;
  st.local.u32 [far+19996], %r; st.param.b32 [r], %r; ret;
}
)"),
                       2, 70, 140);
  for (const uint32_t wrong : out) CHECK(wrong == 0);
}

TEST_CASE("shared variables begin at a multiple of their alignment") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 word; .shared .align 16384 .b8 far[100];
    mov.u64 %x1, far; cvta.shared.u64 %x2, %x1; or.b64 %x1, %x1, %x2; and.b64 %x1, %x1, 16383;
    cvt.u32.u64 %r1, %x1; st.global.u32 [%slot], %r1;
    st.shared.u32 [word], 1; st.shared.u32 [far+96], 1;)"),
                       20, 1, 20);
  for (const uint32_t wrong : out) CHECK(wrong == 0);
}
