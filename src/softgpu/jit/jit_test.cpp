// Tier 1 does what tier 0 does: kernels on both, memory compared byte for byte; and its cache of machine
// code.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "doctest/doctest.h"
#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/exec/test/engine_test_support.h"
#include "softgpu/jit/code_cache.h"
#include "softgpu/jit/emit/kernel_compiler.h"

using namespace softgpu;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::ptx_header;

namespace {

// A compiler of the test's own, that compiles before the first launch and keeps nothing on the disk.
class InTier {
 public:
  explicit InTier(bool compiled) { set_kernel_compiler_for_tests(compiled ? own().get() : nullptr); }
  ~InTier() { reset_kernel_compiler_for_tests(); }
  InTier(const InTier&) = delete;
  InTier& operator=(const InTier&) = delete;
  static std::unique_ptr<KernelCompiler>& own() {
    static std::unique_ptr<KernelCompiler> made = [] {
      std::string problem;
      auto compiler = jit::make_kernel_compiler({jit::Mode::always, ""}, problem);
      if (compiler == nullptr) MESSAGE("tier 1 is not tested: " << problem);
      return compiler;
    }();
    return made;
  }
};

std::string kernel(const std::string& body) {
  return ptx_header +
         ".visible .entry k(.param .u64 p, .param .u32 n)\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 "
         "%r<40>, "
         "%tid, %gid, %n; .reg .b64 %x<20>, %out, %slot; .reg .f32 %f<8>; .reg .f64 %d<8>;\n"
         "ld.param.u64 %out, [p]; ld.param.u32 %n, [n]; mov.u32 %tid, %tid.x; mov.u32 %r0, %ntid.x;\n"
         "mad.lo.s32 %gid, %ctaid.x, %r0, %tid; mad.wide.u32 %slot, %gid, 4, %out;\n" +
         body + "\nret;\n}\n";
}

struct Shape {
  Dim3 grid, block;
};

struct Run {
  LaunchResult result;
  std::vector<std::byte> memory;
  bool compiled = false;
};

Run run(const std::string& text, const Shape& shape, bool compiled) {
  const InTier tier(compiled);
  Machine machine(text, 1);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  for (uint32_t i = 0; i < Machine::arena_bytes / 4; ++i) machine.at<uint32_t>(0)[i] = i * 2654435761u;
  Run made;
  made.result =
      machine.run(shape.grid, shape.block, Parameters().add(machine.address(0x40000)).add(uint32_t{1000}));
  made.memory.assign(machine.arena, machine.arena + Machine::arena_bytes);
  if (compiled) {
    Launch launch;
    launch.image = machine.image.get();
    launch.grid = shape.grid;
    launch.block = shape.block;
    made.compiled = InTier::own()->find(launch) != nullptr;
  }
  return made;
}

// Each run has memory of its own.
std::string without_addresses(std::string text) {
  for (size_t at = text.find("0x"); at != std::string::npos; at = text.find("0x", at + 2)) {
    const size_t end = text.find_first_not_of("0123456789abcdef", at + 2);
    text.erase(at + 2, (end == std::string::npos ? text.size() : end) - at - 2);
  }
  return text;
}

enum class Tier : uint8_t { compiled, interpreted };

// What cannot be compiled is interpreted without a word, and would be the same then.
void check_same(const std::string& body, const Shape& shape = {{4, 1, 1}, {96, 1, 1}},
                Tier tier = Tier::compiled) {
  if (InTier::own() == nullptr) return;
  CAPTURE(body);
  const Run expected = run(kernel(body), shape, false), got = run(kernel(body), shape, true);
  CHECK(expected.result.fault == Fault::none);
  CHECK(got.result.detail == expected.result.detail);
  CHECK(got.memory == expected.memory);
  CHECK(got.compiled == (tier == Tier::compiled));
}

}  // namespace

TEST_CASE("shuffles by distances and segments that only the running code knows") {
  for (const char* const mode : {"up", "down", "bfly", "idx"}) {
    for (const char* const distance : {"%n", "%r1", "%r2"}) {  // of all lanes, of each block, of each lane
      for (const char* const segment : {"31", "0x1807", "%r3"}) {  // whole warps, eights, of each lane
        check_same(std::string("ld.global.u32 %r4, [%slot]; mov.u32 %r1, %ctaid.x; shr.u32 %r2, %tid, 2; "
                               "and.b32 %r3, %r4, 0x1f1f;\nshfl.sync.") +
                   mode + ".b32 %r5|%p1, %r4, " + distance + ", " + segment +
                   ", -1; selp.u32 %r6, 1, 0, %p1; mad.lo.u32 %r5, %r5, 2, %r6; st.global.u32 [%slot], %r5;");
      }
    }
  }
}

TEST_CASE("quotients and remainders of every pair of lanes, also by zero and by minus one") {
  for (const char* const operation : {"div.u32", "div.s32", "rem.u32", "rem.s32"}) {
    check_same(std::string("ld.global.u32 %r1, [%slot]; ld.global.u32 %r2, [%slot+4]; and.b32 %r3, %tid, 7; "
                           "setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 1; setp.eq.u32 %p3, %r3, 2; "
                           "setp.lt.u32 %p4, %r3, 5;\n"
                           "@%p4 shr.u32 %r2, %r2, %r3; @%p1 mov.u32 %r2, 0; @%p2 mov.u32 %r2, -1; "
                           "@%p3 mov.u32 %r1, 0x80000000; @%p3 mov.u32 %r2, -1; and.b32 %r4, %tid, 8; "
                           "setp.eq.u32 %p5, %r4, 0; @%p5 mov.u32 %r1, -1;\n") +
                   operation + " %r5, %r1, %r2; bar.sync 0; st.global.u32 [%slot], %r5;",
               {{1, 1, 1}, {128, 1, 1}});
  }
}

TEST_CASE("thread indices of every shape of block") {
  const char* const body = R"(
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
    mov.u32 %r6, %ctaid.y; mov.u32 %r7, %nctaid.x;
    mad.lo.u32 %r8, %r3, %r5, %r2; mad.lo.u32 %r8, %r8, %r4, %r1;
    mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r6, %r7, %r9; mad.lo.u32 %r8, %r9, 256, %r8;
    mad.wide.u32 %x1, %r8, 4, %out;
    shl.b32 %r1, %r1, 20; shl.b32 %r2, %r2, 10; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
    st.global.u32 [%x1], %r1;)";
  for (const Dim3 block : {Dim3{1, 1, 1}, Dim3{7, 1, 1}, Dim3{32, 4, 1}, Dim3{16, 16, 1}, Dim3{8, 4, 4},
                           Dim3{50, 2, 1}, Dim3{5, 5, 5}, Dim3{64, 2, 2}, Dim3{4, 3, 2}, Dim3{2, 2, 64}}) {
    check_same(body, {{3, 2, 1}, block});
  }
}

TEST_CASE("parameters chosen among by their addresses") {
  // Of the pointer only what lies within a page: the rest differs between runs.
  check_same(R"(
    and.b32 %r1, %tid, 1; setp.ne.b32 %p1, %r1, 0;
    mov.b32 %r2, p; mov.b32 %r3, n; selp.b32 %r4, %r3, %r2, %p1;
    ld.param.b32 %r5, [%r4]; and.b32 %r5, %r5, 4095;
    cvt.u64.u32 %x1, %r3; cvta.param.u64 %x1, %x1; ld.u32 %r6, [%x1];
    mov.b64 %x2, n; cvta.param.u64 %x2, %x2; ld.u32 %r7, [%x2];
    add.u32 %r5, %r5, %r6; mad.lo.u32 %r5, %r7, 3, %r5;
    st.global.u32 [%slot], %r5;)");
}

TEST_CASE("registers that one side of a branch changes keep their values on the other") {
  check_same(R"(
    mov.u32 %r1, 5; mov.u32 %r2, 0; mov.u32 %r5, 9;
  OUTER:
    and.b32 %r3, %gid, 7; setp.lt.u32 %p1, %r2, %r3; @!%p1 bra DONE;
    and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra EVEN;
    mul.lo.u32 %r1, %r1, 3; mov.u32 %r5, %r2; bra NEXT;
  EVEN:
    add.u32 %r1, %r1, %r5;
  NEXT:
    add.u32 %r2, %r2, 1; bra OUTER;
  DONE:
    add.u32 %r1, %r1, %r2; mad.lo.u32 %r1, %r5, 1000, %r1; st.global.u32 [%slot], %r1;)");
}

TEST_CASE("what lanes do together needs none of those that have left") {
  for (const char* const together :
       {"redux.sync.add.u32 %r2, %r1, 0xffffffff;", "redux.sync.add.u32 %r2, %r1, 0xfffff;",
        "match.any.sync.b32 %r2, %r1, 0xffffffff;", "vote.sync.ballot.b32 %r2, %p3, 0xffffffff;",
        "and.b32 %r3, %tid, 3; shfl.sync.idx.b32 %r2, %r1, %r3, 31, 0xffffffff;"}) {
    check_same(std::string(R"(
      and.b32 %r4, %tid, 31; add.u32 %r1, %r4, 7; setp.lt.u32 %p3, %r4, 11; mov.u32 %r2, 0;
      setp.ge.u32 %p1, %r4, 20; @%p1 exit;
      )") + together +
               R"(
      st.global.u32 [%slot], %r2;
      bar.sync 0;
      ld.global.u32 %r5, [%slot]; add.u32 %r5, %r5, 1; st.global.u32 [%slot], %r5;)");
  }
}

TEST_CASE("addresses in a row, in halves, scattered, the same, and of guarded accesses") {
  check_same(R"(
    mov.u64 %x1, %out; sub.u64 %x1, %x1, 0x40000;
    mad.wide.u32 %x2, %gid, 4, %x1; ld.global.u32 %r1, [%x2];
    and.b32 %r2, %gid, 15; mad.wide.u32 %x3, %r2, 4, %x1; ld.global.u32 %r3, [%x3+64];
    mul.lo.u32 %r4, %gid, 37; and.b32 %r4, %r4, 1023; mad.wide.u32 %x4, %r4, 4, %x1; ld.global.u32 %r5, [%x4];
    ld.global.u32 %r6, [%x1+12];
    mad.wide.u32 %x5, %gid, 16, %x1; ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%x5];
    mad.wide.u32 %x6, %gid, 2, %x1; ld.global.s16 %r11, [%x6]; ld.global.u8 %r12, [%x6+1];
    and.b32 %r13, %gid, 3; setp.eq.u32 %p1, %r13, 1; mov.u32 %r14, 77; @%p1 ld.global.u32 %r14, [%x2+8];
    add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r5; add.u32 %r1, %r1, %r6; xor.b32 %r1, %r1, %r7; add.u32 %r1, %r1, %r8;
    xor.b32 %r1, %r1, %r9; add.u32 %r1, %r1, %r10; add.u32 %r1, %r1, %r11; xor.b32 %r1, %r1, %r12; add.u32 %r1, %r1, %r14;
    st.global.u32 [%slot], %r1; @%p1 st.global.u32 [%slot+8192], %r1; st.global.v2.u32 [%x5+0x60000], {%r1, %r3};
    st.global.u32 [%out+40000], %gid;)");
}

TEST_CASE("a row of addresses for each row of the block") {
  const char* const body = R"(
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.y; mov.u32 %r15, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r2; mad.lo.u32 %r6, %r5, %r15, %r1;
    mov.u64 %x1, %out; sub.u64 %x1, %x1, 0x40000;
    ld.global.u32 %r7, [%x1+128]; and.b32 %r7, %r7, 3; add.u32 %r7, %r7, 100; mad.lo.u32 %r8, %r5, %r7, %r1;
    mad.wide.u32 %x2, %r8, 4, %x1; ld.global.u32 %r9, [%x2];
    mad.wide.u32 %x3, %r8, 8, %x1; ld.global.u64 %x4, [%x3+64]; cvt.u32.u64 %r10, %x4;
    mad.wide.u32 %x5, %r8, 2, %x1; ld.global.s16 %r11, [%x5+6];
    cvt.u64.u32 %x6, %r8; add.u64 %x6, %x6, %x1; ld.global.u8 %r12, [%x6+3];
    and.b32 %r13, %r6, 5; setp.eq.u32 %p1, %r13, 1; mov.u32 %r14, 77; @%p1 ld.global.u32 %r14, [%x2+400];
    setp.lt.u32 %p2, %r2, 3; @%p2 ld.global.u32 %r14, [%x2+800];
    add.u32 %r9, %r9, %r10; xor.b32 %r9, %r9, %r11; add.u32 %r9, %r9, %r12; xor.b32 %r9, %r9, %r14;
    add.u64 %x2, %x2, 0x60000; st.global.u32 [%x2], %r9; @%p1 st.global.u32 [%x2+51200], %r9;
    add.u64 %x5, %x5, 0x70000; st.global.u16 [%x5], %r9; add.u64 %x6, %x6, 0x78000; st.global.u8 [%x6], %r9;
    add.u64 %x3, %x3, 0x80000; st.global.u64 [%x3], %x4;)";
  for (const Dim3 block :
       {Dim3{16, 16, 1}, Dim3{16, 3, 1}, Dim3{8, 8, 1}, Dim3{8, 5, 3}, Dim3{16, 2, 4}, Dim3{4, 8, 2}}) {
    check_same(body, {{1, 1, 1}, block});
  }
}

TEST_CASE("barriers, shuffles and votes, with lanes that are elsewhere") {
  check_same(R"(
    .shared .b32 tile[128];
    mov.u32 %r1, tile; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %gid; bar.sync 0;
    xor.b32 %r3, %tid, 31; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3];
    shfl.sync.bfly.b32 %r5, %r4, 5, 31, -1; shfl.sync.down.b32 %r6|%p1, %r4, 3, 31, -1;
    selp.u32 %r6, %r6, 1, %p1; and.b32 %r7, %tid, 1; setp.eq.u32 %p2, %r7, 0;
    vote.sync.ballot.b32 %r8, %p2, -1; @%p2 bra MEET;
    shfl.sync.idx.b32 %r5, %r4, 1, 31, 0xaaaaaaaa; add.u32 %r6, %r6, 1000;
  MEET:
    vote.sync.any.pred %p3, %p2, -1; selp.u32 %r9, 3, 4, %p3; bar.sync 0;
    add.u32 %r5, %r5, %r6; xor.b32 %r5, %r5, %r8; add.u32 %r5, %r5, %r9; st.global.u32 [%slot], %r5;)");
}

TEST_CASE("lanes of one instruction that name different members") {
  check_same(R"(
    mov.u32 %r9, %lanemask_lt; mov.u32 %r10, %lanemask_le; mov.u32 %r2, 0; mov.u32 %r5, 0;
  AGAIN:
    and.b32 %r1, %gid, 3; setp.le.u32 %p1, %r1, %r2;
    vote.sync.ballot.b32 %r3, %p1, %r9; redux.sync.add.u32 %r4, %r3, %r10;
    mad.lo.u32 %r5, %r5, 31, %r4; add.u32 %r2, %r2, 1;
    and.b32 %r6, %tid, 7; setp.le.u32 %p2, %r2, %r6; @%p2 bra AGAIN;
    st.global.u32 [%slot], %r5;)");
}

TEST_CASE("barriers of several numbers, and warps that wait at different ones") {
  check_same(R"(
    .shared .b32 tile[96];
    mov.u32 %r1, tile; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %gid; bar.sync 1;
    sub.u32 %r3, 95, %tid; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3]; bar.sync 15;
    st.shared.u32 [%r2], %r4; bar.sync 1; ld.shared.u32 %r5, [%r3]; add.u32 %r4, %r4, %r5;
    st.global.u32 [%slot], %r4;)");
  if (InTier::own() == nullptr) return;
  // The halves of the first wait for ever; the number of the last does not exist.
  for (const char* const body :
       {"setp.ge.u32 %p1, %tid, 32; @%p1 bra OTHER; bar.sync 1; bra DONE; OTHER: bar.sync 2; DONE:",
        "mov.u32 %r1, %nctaid.x; bar.sync %r1; st.global.u32 [%slot], %r1;", "bar.sync 200;"}) {
    CAPTURE(body);
    const Shape shape{{2, 1, 1}, {64, 1, 1}};
    const Run expected = run(kernel(body), shape, false), got = run(kernel(body), shape, true);
    CHECK(got.result.fault == expected.result.fault);
    CHECK(got.result.detail == expected.result.detail);
    CHECK(got.memory == expected.memory);
  }
}

TEST_CASE("f32 and f64 with special values") {
  check_same(R"(
    sub.u64 %x1, %out, 0x40000; mad.wide.u32 %x2, %gid, 4, %x1; ld.global.b32 %f1, [%x2]; ld.global.b32 %f2, [%x2+4];
    add.f32 %f3, %f1, %f2; mul.ftz.f32 %f4, %f1, %f2; fma.rn.f32 %f5, %f1, %f2, %f3; min.f32 %f6, %f1, %f2;
    max.ftz.f32 %f7, %f3, %f4; sqrt.rn.f32 %f3, %f2; div.rn.f32 %f4, %f1, %f2; neg.f32 %f1, %f1; abs.f32 %f2, %f2;
    cvt.f64.f32 %d1, %f5; mul.f64 %d2, %d1, 0d3FF5555555555555; cvt.rn.f32.f64 %f5, %d2; cvt.rzi.s32.f32 %r1, %f6;
    cvt.rzi.u32.f32 %r2, %f7; setp.lt.f32 %p1, %f1, %f2; setp.geu.f32 %p2, %f3, %f4; selp.u32 %r3, 1, 2, %p1;
    selp.u32 %r4, 4, 8, %p2; add.u32 %r3, %r3, %r4; add.u32 %r1, %r1, %r2; xor.b32 %r1, %r1, %r3;
    cvt.rn.f32.s32 %f1, %r1; mov.b32 %r5, %f1; xor.b32 %r1, %r1, %r5; st.global.u32 [%slot], %r1;)");
}

// A NaN becomes 0 where no side has 64 bits, else the highest bit alone.
TEST_CASE("NaN and values out of range as integers") {
  check_same(R"(
    and.b32 %r1, %gid, 3; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; setp.eq.u32 %p3, %r1, 2;
    cvt.rn.f32.u32 %f1, %gid; @%p1 mov.f32 %f1, 0f7fc00000; @%p2 mov.f32 %f1, 0fff800000; @%p3 mov.f32 %f1, 0f7f7fffff;
    cvt.f64.f32 %d1, %f1; mov.f32 %f2, 0f7fc00000; mad.wide.u32 %x9, %gid, 64, %out;
    cvt.rzi.s64.f32 %x1, %f1; cvt.rzi.ftz.u64.f32 %x2, %f1; cvt.rzi.s64.f64 %x3, %d1; cvt.rzi.u64.f64 %x4, %d1;
    cvt.rzi.s32.f64 %r2, %d1; cvt.rzi.u32.f64 %r3, %d1; cvt.rzi.s32.f32 %r4, %f1; cvt.rzi.s64.f32 %x5, %f2;
    st.global.v2.u64 [%x9], {%x1, %x2}; st.global.v2.u64 [%x9+16], {%x3, %x4}; st.global.v2.u32 [%x9+32], {%r2, %r3};
    st.global.u32 [%x9+40], %r4; st.global.u64 [%x9+48], %x5;)",
             {{2, 1, 1}, {96, 1, 1}});
}

TEST_CASE("a fault is tier 0's") {
  if (InTier::own() == nullptr) return;
  for (const char* const body :
       {"mov.u64 %x1, 64; ld.global.u32 %r1, [%x1];", "ld.global.u32 %r1, [%slot+2];",
        ".shared .b32 t[32]; mov.u32 %r1, t; mad.lo.u32 %r1, %tid, 4, %r1; st.shared.u32 [%r1+64], %tid;",
        "setp.eq.u32 %p1, %gid, 70; @%p1 trap;"}) {
    CAPTURE(body);
    const Shape shape{{2, 1, 1}, {64, 1, 1}};
    const Run expected = run(kernel(body), shape, false), got = run(kernel(body), shape, true);
    CHECK(expected.result.fault != Fault::none);
    CHECK(got.result.fault == expected.result.fault);
    CHECK(without_addresses(got.result.detail) == without_addresses(expected.result.detail));
  }
}

TEST_CASE("blocks that wait for each other, and an endless kernel that is cancelled") {
  check_same(R"(
    setp.ne.u32 %p1, %tid, 0; mov.u32 %r2, %ctaid.x; @%p1 bra JOIN;
  WAIT:
    ld.volatile.global.u32 %r1, [%out+60000]; sub.u32 %r1, %r1, %n; setp.eq.u32 %p2, %r2, 0; @%p2 bra JOIN;
    atom.global.add.u32 %r3, [%out+60004], 0;
  JOIN:
    bar.sync 0; st.global.u32 [%slot], %r2;)",
             {{40, 2, 1}, {64, 1, 1}});
}

TEST_CASE("blocks with long loops, taken together, stop between two warps") {
  if (InTier::own() == nullptr) return;
  const InTier tier(true);
  std::string steps;
  for (int i = 0; i < 20; ++i) steps += "mad.lo.u32 %r1, %r1, %r1, %r2; xor.b32 %r1, %r1, %gid;\n";
  // No warp uses up its turn: alone, each of the 513 blocks would end.
  Machine machine(kernel("mov.u32 %r1, %gid; mov.u32 %r2, 16000;\nLOOP:\n" + steps + R"(
    sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra LOOP;
    or.b32 %r1, %r1, 1; mov.u32 %r3, %ctaid.x; mad.wide.u32 %x1, %r3, 4, %out; st.global.u32 [%x1], %r1;)"),
                  1);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  machine.time_limit = std::chrono::milliseconds(50);
  const LaunchResult result =
      machine.run({513, 1, 1}, {1024, 1, 1}, Parameters().add(machine.address(0x40000)).add(uint32_t{1000}));
  CHECK(result.fault == Fault::timeout);
  CHECK(result.timed_out);
  CHECK(machine.at<uint32_t>(0x40000)[512] == 0);
}

TEST_CASE("a kernel whose lanes may wait in very many places stays interpreted") {
  std::string ways, places;
  for (int i = 0; i < 3000; ++i) {
    const std::string n = std::to_string(i);
    ways += "setp.eq.u32 %p1, %r1, " + n + "; @%p1 bra L" + n + ";\n";
    places += "L" + n + ": add.u32 %r2, %r2, " + n + ";\n";
  }
  check_same("and.b32 %r1, %gid, 7; mov.u32 %r2, 1;\n" + ways + places + "st.global.u32 [%slot], %r2;",
             {{4, 1, 1}, {96, 1, 1}}, Tier::interpreted);
}

TEST_CASE("what the interpreter puts into a register that began as a constant is kept") {
  check_same(R"(
    mov.u32 %r1, 0; setp.lt.u32 %p2, %tid, 40; setp.gt.u32 %p1, %n, 2000;
    @%p1 bra S;
    bar.red.popc.u32 %r1, 0, %p2;
  S: st.global.u32 [%slot], %r1;)");
}

TEST_CASE("the cache gives back only what it was given, to its owner") {
  const std::string folder = std::string(P_tmpdir) + "/softgpu-jit-test-" + std::to_string(getpid());
  std::string problem;
  const std::vector<std::byte> code(5000, std::byte{7});
  {
    const jit::CodeCache cache(folder, problem, 12000);
    REQUIRE(problem.empty());
    CHECK(!cache.load("a"));
    cache.store("a", code);
    CHECK(cache.load("a") == code);
    std::filesystem::copy_file(folder + "/a", folder + "/b");
    CHECK(!cache.load("b"));  // another name's content
    std::fstream(folder + "/a", std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('x');
    CHECK(!cache.load("a"));
    cache.store("a", code);
    chmod((folder + "/a").c_str(), 0620);
    CHECK(!cache.load("a"));
    std::filesystem::remove(folder + "/b");
    std::filesystem::create_symlink(folder + "/a", folder + "/b");
    CHECK(!cache.load("b"));
    cache.store("c", code);
    cache.store("d", code);  // more than 12000 bytes: the longest unused went
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files += entry.is_regular_file() ? 1 : 0;
    CHECK(files < 3);
  }
  chmod(folder.c_str(), 0770);
  const jit::CodeCache open_to_others(folder, problem);
  CHECK(problem.find("0700") != std::string::npos);
  CHECK(!open_to_others.load("d"));
  std::filesystem::remove_all(folder);
}
