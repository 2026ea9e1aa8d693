// What threads do together: barriers, exchanges within a warp, atomics, waiting for each other.
#include <bit>

#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::fault_of;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::run;

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

TEST_CASE("lanes of one .sync instruction that name different members take whoever is there") {
  // CUDA says nothing of it. The lanes stand at the same instruction, so they are all here.
  const auto out = run(kernel(R"(
    and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r9, %lanemask_lt; mov.u32 %r10, %lanemask_le;
    vote.sync.ballot.b32 %r2, %p1, %r9; popc.b32 %r2, %r2;
    redux.sync.add.u32 %r3, %tid, %r10;
    mov.u32 %r4, %tid; redux.sync.max.u32 %r4, %r4, %r9;
    shfl.sync.up.b32 %r5, %tid, 1, 0, %r10;
    match.any.sync.b32 %r6, %r1, %r10; popc.b32 %r6, %r6;
    bar.warp.sync %r9;
    shl.b32 %r3, %r3, 5; shl.b32 %r4, %r4, 14; shl.b32 %r5, %r5, 19; shl.b32 %r6, %r6, 24;
    or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4; or.b32 %r2, %r2, %r5; or.b32 %r2, %r2, %r6;
    st.global.u32 [%slot], %r2;)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t before = t == 0 ? 0 : t - 1;
    CHECK(out[t] == ((t + 1) / 2 | t * (t + 1) / 2 << 5 | before << 14 | before << 19 | (t / 2 + 1) << 24));
  }
}

TEST_CASE("lanes that name different members wait for those that are elsewhere, and end") {
  // Lanes 0..15 come later. Those that name them wait; lanes 16..31 name themselves and go on at once.
  const auto out = run(kernel(R"(
    mov.u32 %r1, 0; setp.lt.u32 %p1, %tid, 16; setp.ge.u32 %p2, %tid, 24;
    mov.u32 %r3, %lanemask_eq; selp.b32 %r4, 0xff00ffff, %r3, %p2;
    @%p1 bra LATE;
  MEET:
    vote.sync.ballot.b32 %r2, 1, %r4;
    st.global.u32 [%slot], %r2;
    bra END;
  LATE:
    mov.u32 %r4, 0xff00ffff;
    bra BACK;
  BACK:
    bra MEET;
  END:)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(out[t] == (t >= 16 && t < 24 ? 1u << t : 0xff00ffffu));
  // Half of the lanes of each mask never come.
  const auto left = run(kernel(R"(
    and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r9, %lanemask_le;
    @%p1 bra OTHER;
    vote.sync.ballot.b32 %r2, 1, %r9;
    st.global.u32 [%slot], %r2;
    bra END;
  OTHER:
    vote.sync.ballot.b32 %r2, 1, %r9;
    st.global.u32 [%slot], %r2;
  END:)"),
                        1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t half = t % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    CHECK((left[t] & half) == (half & ((2u << t) - 1)));
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

TEST_CASE("a block that sleeps makes room for one that it waits for") {
  const std::string text = kernel(R"(
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra WRITE;
  SPIN:
    nanosleep.u32 1000000;
    ld.volatile.global.u32 %r2, [%out+4096]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
    st.global.u32 [%out], %r2; bra END;
  WRITE:
    setp.ne.u32 %p1, %r1, 5; @%p1 bra END;
    mov.u32 %r3, 9; st.volatile.global.u32 [%out+4096], %r3;
  END:)");
  for (const unsigned threads : {1U, 2U}) {
    Machine machine(text, threads);
    CHECK(machine.run({6, 1, 1}, {33, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
    CHECK(*machine.at<uint32_t>(0) == 9);
  }
}

TEST_CASE("what sleeps executes nothing") {
  // Each round takes a millisecond at least, so there are not more than 50 of them. Threads that have left,
  // and a warp that waits at the barrier, keep nobody awake.
  const std::string text = kernel(R"(
    setp.eq.u32 %p1, %tid, 7; @%p1 exit;
    setp.gt.u32 %p1, %tid, 31; @%p1 bra MEET;
    mov.u64 %x1, %globaltimer; add.u64 %x1, %x1, 50000000;
  AGAIN:
    nanosleep.u32 2000000;
    mov.u64 %x2, %globaltimer; setp.lt.u64 %p2, %x2, %x1; @%p2 bra AGAIN;
  MEET:
    bar.sync 0;
    st.global.u32 [%slot], 3;)");
  Machine machine(text, 1);
  const LaunchResult result = machine.run({1, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0)));
  CHECK(result.fault == Fault::none);
  CHECK(*machine.at<uint32_t>(4) == 3);
  CHECK(result.executed_warp_instructions < 50 * 4 + 100);
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

TEST_CASE("an access finds its address though other threads of the warp went on meanwhile") {
  const auto out = run(kernel(R"(
    add.u64 %x2, %slot, 512; add.u64 %x3, %slot, 1024;
    add.u32 %r1, %tid, 1000; st.global.u32 [%x2], %r1;
    add.u32 %r1, %tid, 2000; st.global.u32 [%x2+128], %r1;
    setp.ge.u32 %p1, %tid, 16; @%p1 bra END;
    ld.global.u32 %r1, [%x2];
    shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
    ld.global.u32 %r3, [%x2+128];
    st.global.u32 [%slot], %r3;
  END:
    st.global.u32 [%x3], %tid; st.global.u32 [%x3+128], %tid;)"),
                       1, 32, 512);
  for (uint32_t t = 0; t < 16; ++t) CHECK(out[t] == 2000 + t);
  for (uint32_t t = 0; t < 32; ++t) CHECK(out[256 + t] == t);
}

TEST_CASE("a vector of 16 bytes is handed to another block as a whole") {
  // As thrust hands over sums with the word that says they are there, to threads whose addresses descend.
  Machine machine(kernel(R"(
    sub.u32 %r1, 31, %tid; mul.wide.u32 %x1, %r1, 16; add.u64 %x1, %x1, %out;
    mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0;
    mov.u64 %x2, 0; mov.u32 %r3, 0;
    @%p1 bra READ;
  WRITE:
    add.u64 %x2, %x2, 1;
    st.relaxed.gpu.global.v2.u64 [%x1+4096], {%x2, %x2};
    setp.lt.u64 %p2, %x2, 20000; @%p2 bra WRITE;
    bra END;
  READ:
    ld.relaxed.gpu.global.v2.u64 {%x3, %x4}, [%x1+4096];
    setp.ne.u64 %p3, %x3, %x4; @%p3 add.u32 %r3, %r3, 1;
    add.u64 %x2, %x2, 1;
    setp.lt.u64 %p2, %x2, 20000; @%p2 bra READ;
  END:
    st.global.u32 [%slot], %r3;)"),
                  2);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  const LaunchResult result = machine.run({2, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0)));
  REQUIRE(result.fault == Fault::none);
  for (int t = 0; t < 64; ++t) CHECK(machine.at<uint32_t>(0)[t] == 0);
}

TEST_CASE("lanes that meet in a function which they called at different places are refused") {
  const char* const function = R"(
    .func (.param .b32 result) exchanged(.param .b32 value) {
      .reg .b32 %a, %b;
      ld.param.b32 %a, [value];
      shfl.sync.bfly.b32 %b, %a, 16, 31, -1;
      st.param.b32 [result], %b;
      ret;
    }
  )";
  auto called = [](const char* register_name) {
    return std::string("{ .param .b32 v; .param .b32 r; st.param.b32 [v], ") + register_name +
           "; call (r), exchanged, (v); ld.param.b32 %r2, [r]; }";
  };
  const std::string both = "setp.lt.u32 %p1, %tid, 16; @%p1 bra ELSE; " + called("%tid") +
                           " bra J; ELSE: " + called("%tid") + " J: st.global.u32 [%slot], %r2;";
  const LaunchResult result = fault_of(kernel(both, function));
  CHECK(result.fault == Fault::illegal_instruction);
  CHECK(result.detail.find("called at different places") != std::string::npos);
  const auto out = run(kernel(called("%tid") + " st.global.u32 [%slot], %r2;", function), 1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(out[t] == (t ^ 16));
}
