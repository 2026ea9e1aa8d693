// What kernels are told when they go wrong: the texts of faults, and what the checks find and do not find.
#include <doctest/doctest.h>

#include <string>

#include "softgpu/exec/checks/fault_text.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::ptx_header;

namespace {

constexpr Checks only_memory{.memory = true, .race = false, .initialised = false, .barrier = false};
constexpr Checks only_race{.memory = false, .race = true, .initialised = false, .barrier = false};
constexpr Checks only_initialised{.memory = false, .race = false, .initialised = true, .barrier = false};
constexpr Checks only_barrier{.memory = false, .race = false, .initialised = false, .barrier = true};

// The body begins at line 8; %slot is this thread's word of the output, %s of shared memory.
std::string kernel(const std::string& body) {
  return ptx_header +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<8>; .reg .b32 %r<20>, %tid, %lane, %s; .reg "
         ".b64 "
         "%x<20>, %out, %slot; .shared .align 8 .b32 tile[128]; .shared .align 8 .b64 bar;\n"
         "ld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mov.u32 %lane, %laneid; mad.wide.u32 %slot, %tid, 4, "
         "%out; mov.u32 %s, tile; mad.lo.s32 %s, %tid, 4, %s;\n" +
         body + "\nret;\n}\n";
}

LaunchResult run(const std::string& body, const Checks& checks, uint32_t block = 64, uint32_t grid = 1) {
  Machine machine(kernel(body), 2, checks);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  machine.extra_memory = [&](uint64_t address, size_t size) {  // the allocation: one word per thread
    return address >= machine.address(0) && address + size <= machine.address(0) + uint64_t{4} * block;
  };
  machine.describe_memory = [&](uint64_t address, size_t) {
    return std::to_string(address - machine.address(0)) + " bytes from the start";
  };
  return machine.run({grid, 1, 1}, {block, 1, 1}, Parameters().add(machine.address(0)));
}

void finds(const LaunchResult& result, Fault fault, std::initializer_list<const char*> parts) {
  INFO(result.detail);
  CHECK(static_cast<int>(result.fault) == static_cast<int>(fault));
  for (const char* part : parts) {
    INFO(part);
    CHECK(result.detail.find(part) != std::string::npos);
  }
}
void finds_nothing(const LaunchResult& result) {
  INFO(result.detail);
  CHECK(static_cast<int>(result.fault) == static_cast<int>(Fault::none));
}

constexpr const char* neighbour_address =
    "xor.b32 %r2, %tid, 1; mov.u32 %r3, tile; mad.lo.s32 %r3, %r2, 4, %r3;\n";

}  // namespace

TEST_CASE("a fault says what was accessed, where, by whom, and what lies there") {
  const std::string store =
      "setp.eq.u32 %p1, %tid, 37; add.s64 %x1, %slot, 8388608;\n@%p1 st.global.u32 [%x1+4], %tid;";
  finds(run(store, {}), Fault::illegal_address,
        {"illegal address, write of 4 bytes at 0x", "kernel k", "block (0, 0, 0)", "thread (37, 0, 0)",
         "line 9", "8388760 bytes from the start"});
  finds(run("add.s64 %x1, %slot, 2;\nld.global.u32 %r1, [%x1]; st.global.u32 [%slot], %r1;", {}, 32),
        Fault::misaligned_address, {"misaligned address, read of 4 bytes at 0x", "thread (0, 0, 0)"});
}

TEST_CASE("memory: an access beside its allocation is found to the byte") {
  const std::string one_too_far = "st.global.u32 [%slot+4], %tid;";
  finds_nothing(run(one_too_far, {}));
  finds(run(one_too_far, only_memory), Fault::illegal_address,
        {"write of 4 bytes", "thread (63, 0, 0)", "256 bytes from the start"});
  finds(run("ld.global.u32 %r1, [%slot+-4]; st.global.u32 [%slot], %r1;", only_memory),
        Fault::illegal_address, {"read of 4 bytes", "thread (0, 0, 0)"});
  finds(run("and.b32 %r1, %tid, 60; mad.wide.u32 %x1, %r1, 4, %out; atom.global.add.u32 %r2, [%x1+16], 1;",
            only_memory),
        Fault::illegal_address, {"atomic operation on 4 bytes", "thread (60, 0, 0)"});
  finds_nothing(
      run("st.global.u32 [%slot], %tid; st.shared.u32 [%s], %tid; cvta.shared.u64 %x1, 0; "
          "ld.u32 %r1, [%x1]; st.global.u32 [%slot], %r1;",
          only_memory));
}

TEST_CASE("races: what no barrier orders is found, with both places") {
  const std::string swap = std::string("st.shared.u32 [%s], %tid;\n") + neighbour_address;
  finds(run(swap + "ld.shared.u32 %r1, [%r3]; st.global.u32 [%slot], %r1;", only_race), Fault::check_failed,
        {"race in shared memory", "reads tile", "thread (0, 0, 0), PTX line 10", "with thread (1, 0, 0)",
         "written it at PTX line 8"});
  finds_nothing(run(swap + "bar.sync 0; ld.shared.u32 %r1, [%r3]; st.global.u32 [%slot], %r1;", only_race));
  finds_nothing(
      run(swap + "bar.warp.sync -1; ld.shared.u32 %r1, [%r3]; st.global.u32 [%slot], %r1;", only_race));
  finds_nothing(run(swap + "shfl.sync.idx.b32 %r5, %tid, 0, 31, -1; ld.shared.u32 %r1, [%r3]; st.global.u32 "
                           "[%slot], %r1;",
                    only_race));
  // Through generic addresses too.
  finds(run(swap + "cvt.u64.u32 %x1, %r3; cvta.shared.u64 %x1, %x1; ld.u32 %r1, [%x1]; st.global.u32 "
                   "[%slot], %r1;",
            only_race),
        Fault::check_failed, {"race in shared memory"});
}

TEST_CASE("races: a synchronisation of the warp does not order other warps") {
  const std::string other_warp =
      "st.shared.u32 [%s], %tid; xor.b32 %r2, %tid, 32; mov.u32 %r3, tile; mad.lo.s32 %r3, %r2, 4, %r3;\n";
  const std::string read = "ld.shared.u32 %r1, [%r3]; st.global.u32 [%slot], %r1;";
  finds(run(other_warp + "bar.warp.sync -1;" + read, only_race), Fault::check_failed, {"race"});
  finds_nothing(run(other_warp + "barrier.sync 3, 64;" + read, only_race));
  finds_nothing(run(other_warp + "bar.sync 0;" + read, only_race, 64, 50));
}

TEST_CASE("races: one barrier too few in a loop") {
  const std::string loop =
      "mov.u32 %r9, 0;\nAGAIN: st.shared.u32 [%s], %r9; bar.sync 0; xor.b32 %r2, %tid, 32; mov.u32 %r3, "
      "tile; "
      "mad.lo.s32 %r3, %r2, 4, %r3; ld.shared.u32 %r1, [%r3];";
  const std::string next = " add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 4; @%p1 bra AGAIN;";
  finds(run(loop + next, only_race), Fault::check_failed, {"race in shared memory"});
  finds_nothing(run(loop + "bar.sync 0;" + next, only_race));
}

TEST_CASE("races: two writers, unless they write the same value") {
  finds(run("st.shared.u32 [tile], %tid;", only_race), Fault::check_failed, {"writes tile", "written it"});
  finds_nothing(run("mov.u32 %r1, 7; st.shared.u32 [tile], %r1;", only_race));
  finds(run("mov.u32 %r1, 0; setp.gt.u32 %p1, %tid, 31; @%p1 mov.u32 %r1, 1; st.shared.u32 [tile], %r1;",
            only_race),
        Fault::check_failed, {"writes tile"});
}

TEST_CASE("races: atomics, a lock, a flag and an mbarrier order what they are meant to") {
  finds_nothing(run("atom.shared.add.u32 %r1, [tile], 1;", only_race));
  finds(run("setp.gt.u32 %p1, %tid, 31; @%p1 bra B; atom.shared.add.u32 %r1, [tile], 1; bra C; "
            "B: st.shared.u32 [tile], 5; C:",
            only_race),
        Fault::check_failed, {"race"});
  const std::string lock = R"(
    setp.ne.u32 %p5, %tid, 0; @%p5 bra START; st.shared.u32 [tile+4], 0; st.shared.u32 [tile], 0; START: bar.sync 0;
    LOCK: atom.shared.cas.b32 %r1, [tile], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOCK;
    ld.shared.u32 %r2, [tile+4]; add.u32 %r2, %r2, 1; st.shared.u32 [tile+4], %r2; membar.cta;
    atom.shared.exch.b32 %r1, [tile], 0;)";
  finds_nothing(run(lock, only_race));
  const std::string flag = R"(
    setp.ne.u32 %p5, %tid, 0; @%p5 bra WAIT; st.shared.u32 [tile+8], 9; membar.cta; st.volatile.shared.u32 [tile+4], 1;
    bra DONE; WAIT: ld.volatile.shared.u32 %r1, [tile+4]; setp.ne.u32 %p1, %r1, 1; @%p1 bra WAIT;
    ld.shared.u32 %r2, [tile+8]; DONE:)";
  finds_nothing(run(flag, only_race));
  const std::string mbarrier = R"(
    setp.ne.u32 %p5, %tid, 0; @%p5 bra START; mbarrier.init.shared.b64 [bar], 64; START: bar.sync 0;
    st.shared.u32 [%s], %tid; mbarrier.arrive.shared.b64 %x1, [bar];
    WAIT: mbarrier.test_wait.shared.b64 %p1, [bar], %x1; @!%p1 bra WAIT;
    xor.b32 %r2, %tid, 32; mov.u32 %r3, tile; mad.lo.s32 %r3, %r2, 4, %r3; ld.shared.u32 %r1, [%r3];)";
  finds_nothing(run(mbarrier, only_race));
}

TEST_CASE("initialised: shared memory that the block has not written") {
  const std::string read = "ld.shared.u32 %r1, [%s]; st.global.u32 [%slot], %r1;";
  finds(run(read, only_initialised), Fault::check_failed, {"uninitialised read", "tile", "thread (0, 0, 0)"});
  finds_nothing(run("st.shared.u32 [%s], %tid;" + read, only_initialised, 64, 20));
  finds(run("setp.ne.u32 %p1, %tid, 5; @%p1 st.shared.u32 [%s], %tid; bar.sync 0;" + read, only_initialised,
            64, 2),
        Fault::check_failed, {"tile + 20"});
}

TEST_CASE("barrier: threads that end without it, lanes that come elsewhere, lanes that never come") {
  const std::string early = "setp.gt.u32 %p1, %tid, 40; @%p1 exit; bar.sync 0;";
  finds_nothing(run(early, {}));
  finds(run(early, only_barrier), Fault::check_failed,
        {"barrier 0 of kernel k", "23 of 64 threads have ended", "41 threads from (0, 0, 0) on wait"});
  finds_nothing(run("bar.sync 0;", only_barrier));
  finds(run("setp.gt.u32 %p1, %lane, 15; @%p1 bra B; bar.sync 0; bra C; B:\nbar.sync 0; C:", only_barrier),
        Fault::check_failed, {"at different places", "line 8", "line 9"});
  const std::string shuffle =
      "setp.gt.u32 %p1, %lane, 15; @%p1 bra OUT; shfl.sync.idx.b32 %r5, %tid, 0, 31, -1; OUT:";
  finds_nothing(run(shuffle, {}));
  finds(run(shuffle, only_barrier), Fault::check_failed, {".sync instruction", "do not come"});
}

TEST_CASE("threads that wait for each other at different barriers are named") {
  finds(run("setp.gt.u32 %p1, %tid, 31; @%p1 bra B; bar.sync 1; bra C; B:\nbar.sync 2, 96; C:", {}),
        Fault::timeout,
        {"no thread can go on", "32 threads from (0, 0, 0) on wait at barrier 1 at PTX line 8",
         "32 threads from (32, 0, 0) on wait at barrier 2 at PTX line 9",
         "barrier 2 opens when 96 threads have come"});
}

TEST_CASE("an endless kernel ends after its time, and says where it was") {
  Machine machine(
      kernel("AGAIN:\nld.volatile.shared.u32 %r1, [tile];\nsetp.ne.u32 %p1, %r1, 77;\n@%p1 bra AGAIN;"));
  REQUIRE(machine.image != nullptr);
  machine.time_limit = std::chrono::milliseconds(60);
  const auto result = machine.run({4, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0)));
  finds(result, Fault::timeout,
        {"kernel k has not ended after 0.06 s", "64 threads from (0, 0, 0) on run at PTX line 9"});
}

TEST_CASE("a line of the source is named where the PTX has it") {
  Machine machine(ptx_header + R"(.file 1 "add.py"
.visible .entry k(.param .u64 p)
{
.reg .b32 %r<4>; .reg .b64 %x<4>;
.loc 1 12 5
mov.u64 %x1, 64;
st.global.u32 [%x1], %r1;
ret;
}
)");
  REQUIRE(machine.image != nullptr);
  finds(machine.run({1, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))), Fault::illegal_address,
        {"thread (0, 0, 0), add.py:12 (PTX line 10)"});
}

TEST_CASE("kernels are called what their author called them") {
  CHECK(kernel_text("saxpy") == "saxpy");
  CHECK(kernel_text("_Z4fillIiEvPT_i") == "fill<int>");
  CHECK(kernel_text("_ZN8__main__4wildB2v1B3cw5E5ArrayIdLi1E1C7mutable7alignedE") == "__main__::wild");
}
