// Kernels are compiled in the background while several threads launch them, and while their programs come and
// go.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/exec/test/engine_test_support.h"
#include "softgpu/jit/compiler_process.h"
#include "softgpu/jit/emit/kernel_compiler.h"

using namespace softgpu;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::ptx_header;

namespace {

constexpr Dim3 test_grid{6, 1, 1}, test_block{64, 1, 1};
constexpr uint32_t slot_count = 6 * 64;
constexpr std::chrono::seconds longest_wait(120);

// A background compiler, that is never destroyed, as the process's own.
class InBackground {
 public:
  InBackground() {
    std::string problem;
    static KernelCompiler* const compiler =
        jit::make_kernel_compiler({jit::Mode::background, ""}, problem).release();
    compiler_ = compiler;
    set_kernel_compiler_for_tests(compiler_);
  }
  ~InBackground() { reset_kernel_compiler_for_tests(); }
  InBackground(const InBackground&) = delete;
  InBackground& operator=(const InBackground&) = delete;
  [[nodiscard]] bool has_compiled(const Machine& machine) const {
    Launch launch;
    launch.image = machine.image.get();
    launch.grid = test_grid;
    launch.block = test_block;
    return compiler_->find(launch) != nullptr;
  }

 private:
  KernelCompiler* compiler_;
};

bool has_llvm() {
  jit::CompilerProcess compiler;
  std::string problem;
  if (!compiler.identity(problem).empty()) return true;
  MESSAGE("not tested: " << problem);
  return false;
}

// Each thread's slot becomes 3 * slot + `added`, by way of shared memory.
std::string program(uint32_t added) {
  return ptx_header +
         ".shared .b32 tile[64];\n.visible .entry k(.param .u64 p) {\n.reg .b32 %r<8>; .reg .b64 %x<3>;\n"
         "ld.param.u64 %x1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;\n"
         "mad.wide.u32 %x2, %r3, 4, %x1; ld.global.u32 %r4, [%x2]; mov.u32 %r5, tile;\n"
         "mad.lo.u32 %r6, %r1, 4, %r5; st.shared.u32 [%r6], %r4; bar.sync 0; ld.shared.u32 %r7, [%r6];\n"
         "mad.lo.u32 %r7, %r7, 3, " +
         std::to_string(added) + "; st.global.u32 [%x2], %r7; ret; }\n";
}

// Launches once; false if any thread's result is wrong.
bool launch_is_right(Machine& machine, uint32_t added) {
  auto* const memory = machine.at<uint32_t>(0);
  for (uint32_t i = 0; i < slot_count; ++i) memory[i] = i * 2654435761u;
  const LaunchResult result = machine.run(test_grid, test_block, Parameters().add(machine.address(0)));
  if (result.fault != Fault::none) return false;
  for (uint32_t i = 0; i < slot_count; ++i) {
    if (memory[i] != 3 * i * 2654435761u + added) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("launches go on while their kernels are compiled, each on a device of its own") {
  if (!has_llvm()) return;
  const InBackground background;
  constexpr uint32_t thread_count = 4, program_count = 3;
  std::atomic<uint32_t> wrong{0}, compiled{0};
  auto use = [&](uint32_t thread) {
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    for (uint32_t n = 0; n < program_count; ++n) {
      const uint32_t added = 100 * thread + n;
      Machine machine(program(added));
      while (!background.has_compiled(machine) && std::chrono::steady_clock::now() < end)
        wrong += !launch_is_right(machine, added);
      compiled += background.has_compiled(machine);
      wrong += !launch_is_right(machine, added);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < thread_count; ++t) threads.emplace_back(use, t);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(compiled == thread_count * program_count);
}

TEST_CASE("a program goes although its kernel is compiled") {
  if (!has_llvm()) return;
  const InBackground background;
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  std::vector<std::weak_ptr<const Program>> programs;
  for (uint32_t n = 0; n < 3; ++n) {
    Machine machine(program(3000 + n));
    while (!background.has_compiled(machine) && std::chrono::steady_clock::now() < end)
      CHECK(launch_is_right(machine, 3000 + n));
    CHECK(background.has_compiled(machine));
    programs.push_back(machine.image->program_pointer());
  }
  // The thread that compiled lets go of them in a moment.
  const auto held = [&] {
    return std::count_if(programs.begin(), programs.end(), [](const auto& one) { return !one.expired(); });
  };
  const auto last_look = std::chrono::steady_clock::now() + longest_wait;
  while (held() != 0 && std::chrono::steady_clock::now() < last_look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(held() == 0);
}

TEST_CASE("a program goes while its kernel is compiled") {
  if (!has_llvm()) return;
  const InBackground background;
  uint32_t wrong = 0;
  for (uint32_t n = 0; n < 20; ++n) {
    Machine machine(program(1000 + n));
    for (int launches = 0; launches < 4; ++launches) wrong += !launch_is_right(machine, 1000 + n);
  }
  CHECK(wrong == 0);
  // A begun compilation does not hinder later ones.
  Machine last(program(2000));
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (!background.has_compiled(last) && std::chrono::steady_clock::now() < end)
    CHECK(launch_is_right(last, 2000));
  CHECK(background.has_compiled(last));
}

TEST_CASE("one program, launched by several threads before and after its kernel is compiled") {
  if (!has_llvm()) return;
  const InBackground background;
  constexpr uint32_t thread_count = 3;
  Machine machine(program(5), 3);
  std::atomic<uint32_t> wrong{0};
  auto use = [&](uint32_t thread) {
    // Each with its part of the memory.
    const size_t offset = 4096 * (thread + 1);
    auto* const memory = machine.at<uint32_t>(offset);
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    for (int after = 0; after < 3 && std::chrono::steady_clock::now() < end;) {
      after += background.has_compiled(machine);
      for (uint32_t i = 0; i < slot_count; ++i) memory[i] = i;
      const LaunchResult result =
          machine.run(test_grid, test_block, Parameters().add(machine.address(offset)));
      wrong += result.fault != Fault::none;
      for (uint32_t i = 0; i < slot_count; ++i) wrong += memory[i] != 3 * i + 5;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < thread_count; ++t) threads.emplace_back(use, t);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(background.has_compiled(machine));
}
