// Code that no lane had reached is left out of a compiled kernel; lanes that come there later find the
// interpreter, compiled code behind it, and after some launches a kernel that is compiled anew.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/exec/test/engine_test_support.h"
#include "softgpu/jit/emit/kernel_compiler.h"

using namespace softgpu;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::ptx_header;

namespace {

constexpr Dim3 test_grid{3, 1, 1}, test_block{96, 1, 1};
constexpr uint32_t slots = 3 * 96;
constexpr std::chrono::seconds longest_wait(120);

std::unique_ptr<KernelCompiler> compiler_of(jit::Mode mode) {
  std::string problem;
  jit::CompilerOptions options;
  options.mode = mode;
  options.whole_up_to = 0;
  auto made = jit::make_kernel_compiler(options, problem);
  if (made == nullptr) MESSAGE("not tested: " << problem);
  return made;
}

std::string kernel(const std::string& body) {
  return ptx_header +
         ".shared .b32 tile[96];\n.visible .entry k(.param .u64 p, .param .u32 n)\n{\n.reg .pred %p<8>; .reg "
         ".b32 "
         "%r<40>, %tid, %n; .reg .b64 %x<20>, %out, %slot;\n"
         "ld.param.u64 %out, [p]; ld.param.u32 %n, [n]; mov.u32 %tid, %tid.x; mov.u32 %r0, %ctaid.x;\n"
         "mad.lo.s32 %r0, %r0, 96, %tid; mad.wide.u32 %slot, %r0, 4, %out;\n" +
         body + "\nret;\n}\n";
}

std::vector<uint32_t> launch(Machine& machine, uint32_t n) {
  auto* const memory = machine.at<uint32_t>(0);
  for (uint32_t i = 0; i < slots; ++i) memory[i] = i * 2654435761u;
  const LaunchResult result = machine.run(test_grid, test_block, Parameters().add(machine.address(0)).add(n));
  CHECK(result.detail == "");
  CHECK(result.fault == Fault::none);
  return {memory, memory + slots};
}

std::shared_ptr<const CompiledKernel> compiled(KernelCompiler& compiler, const Machine& machine) {
  Launch launch;
  launch.image = machine.image.get();
  launch.grid = test_grid;
  launch.block = test_block;
  return compiler.find(launch);
}

// Compiled with what n = 0 reaches, the kernel does for every n what the interpreter does.
void check_same(const std::string& body, uint32_t most = 100) {
  const auto compiler = compiler_of(jit::Mode::always);
  if (compiler == nullptr) return;
  CAPTURE(body);
  Machine interpreted(kernel(body)), machine(kernel(body));
  REQUIRE(machine.image != nullptr);
  set_kernel_compiler_for_tests(nullptr);
  launch(machine, 0);
  for (uint32_t n = 0; n <= most; n += n < 4 ? 1 : 31) {
    CAPTURE(n);
    set_kernel_compiler_for_tests(nullptr);
    const std::vector<uint32_t> expected = launch(interpreted, n);
    set_kernel_compiler_for_tests(compiler.get());
    CHECK(launch(machine, n) == expected);
    const auto body_of = compiled(*compiler, machine);
    REQUIRE(body_of != nullptr);
    CHECK((body_of->times_in_left_out() > 0) == (n > 0));
  }
  reset_kernel_compiler_for_tests();
}

// Lanes below n take a way of their own.
const std::string some_lanes = R"(
  ld.global.u32 %r1, [%slot]; mov.u32 %r2, 7; setp.lt.u32 %p1, %tid, %n; @!%p1 bra JOIN;
  add.u32 %r1, %r1, %tid; mov.u32 %r2, 9;
JOIN:
  mad.lo.u32 %r1, %r1, %r2, 1; st.global.u32 [%slot], %r1;)";

}  // namespace

TEST_CASE("a way that some lanes take later, and the code behind it") {
  check_same(some_lanes);
}

TEST_CASE("a register that only left-out code has written, read behind it") {
  check_same(R"(
    setp.lt.u32 %p1, %tid, %n; @!%p1 bra JOIN;
    mad.lo.u32 %r3, %tid, 5, 1;
  JOIN:
    @!%p1 bra DONE;
    st.global.u32 [%slot], %r3;
  DONE:)");
}

TEST_CASE("a loop that is entered later, with a barrier in each round") {
  check_same(R"(
    mov.u32 %r3, tile; mad.lo.u32 %r4, %tid, 4, %r3; ld.global.u32 %r1, [%slot]; mov.u32 %r5, 0;
    st.shared.u32 [%r4], %r1; bar.sync 0;
  HEAD:
    setp.ge.u32 %p1, %r5, %n; @%p1 bra DONE;
    ld.shared.u32 %r6, [%r4]; mad.lo.u32 %r6, %r6, 3, %r5; bar.sync 0;
    st.shared.u32 [%r4], %r6; bar.sync 0;
    add.u32 %r5, %r5, 1; bra HEAD;
  DONE:
    ld.shared.u32 %r6, [%r4]; st.global.u32 [%slot], %r6;)",
             35);
}

TEST_CASE("the way of a block that ends early, left by all its warps") {
  check_same(R"(
    mov.u32 %r1, %ctaid.x; setp.ge.u32 %p1, %r1, %n; @%p1 bra USUAL;
    st.global.u32 [%slot], %tid; ret;
  USUAL:
    mov.u32 %r3, tile; mad.lo.u32 %r4, %tid, 4, %r3; st.shared.u32 [%r4], %tid; bar.sync 0;
    ld.shared.u32 %r5, [%r4]; add.u32 %r5, %r5, 1; st.global.u32 [%slot], %r5;)",
             3);
}

TEST_CASE("a value that is the same number in all code that was reached, and another one later") {
  check_same(R"(
    mov.u32 %r2, 3; setp.eq.u32 %p1, %n, 0; @%p1 bra JOIN;
    mov.u32 %r2, 1000;
  JOIN:
    mov.u32 %r5, 0; mov.u32 %r1, 0;
  HEAD:
    add.u32 %r1, %r1, %r2; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 5; @%p2 bra HEAD;
    add.u32 %r1, %r1, %tid; st.global.u32 [%slot], %r1;)");
}

TEST_CASE("a way of an indexed branch, which the interpreter takes") {
  check_same(R"(
    min.u32 %r1, %n, 1;
    TABLE: .branchtargets FIRST, SECOND;
    brx.idx %r1, TABLE;
  FIRST:
    st.global.u32 [%slot], %tid; ret;
  SECOND:
    mad.lo.u32 %r2, %tid, 3, %n; st.global.u32 [%slot], %r2;)");
}

TEST_CASE("a kernel is compiled anew when its lanes come to left-out code again and again") {
  // Never destroyed, as the process's own: its thread may work when the test ends.
  static KernelCompiler* const compiler = compiler_of(jit::Mode::background).release();
  if (compiler == nullptr) return;
  Machine machine(kernel(some_lanes)), interpreted(kernel(some_lanes));
  set_kernel_compiler_for_tests(nullptr);
  const std::vector<uint32_t> expected = launch(interpreted, 40);
  set_kernel_compiler_for_tests(compiler);
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (compiled(*compiler, machine) == nullptr && std::chrono::steady_clock::now() < end)
    launch(machine, 0);
  const auto first = compiled(*compiler, machine);
  if (first != nullptr) {  // there is an LLVM
    while (compiled(*compiler, machine) == first && std::chrono::steady_clock::now() < end)
      CHECK(launch(machine, 40) == expected);
    const auto second = compiled(*compiler, machine);
    CHECK(first->times_in_left_out() > 0);
    REQUIRE(second != first);
    CHECK(launch(machine, 40) == expected);
    CHECK(second->times_in_left_out() == 0);
  }
  reset_kernel_compiler_for_tests();
}
