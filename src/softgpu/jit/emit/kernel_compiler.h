// Tier 1's compiler, as the process and its tests make it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "softgpu/exec/program/compiled_kernel.h"

namespace softgpu::jit {

enum class Mode : uint8_t {
  off,
  background,  // after some launches, without waiting
  always,      // before a kernel's first launch, for tests
};

struct CompilerOptions {
  Mode mode = Mode::background;
  std::string cache_folder;  // empty: nothing is kept on the disk
  // Kernels with more bytes of text are compiled as far as their lanes have come. Nothing: 128 KiB, and with
  // Mode::always, which compiles before any lane has run, all kernels are compiled whole.
  std::optional<size_t> whole_up_to = std::nullopt;
};

// GPUPOOL_SOFTGPU_JIT=off|on|always, GPUPOOL_SOFTGPU_JIT_CACHE=FOLDER|off.
[[nodiscard]] CompilerOptions options_from_environment();

// Null when no LLVM is found, as far as that is asked at once (Mode::always); `problem` says why, or why
// machine code is not kept.
[[nodiscard]] std::unique_ptr<KernelCompiler> make_kernel_compiler(const CompilerOptions& options,
                                                                   std::string& problem);

}  // namespace softgpu::jit

namespace softgpu {

// Another compiler, or none, instead of the process's.
void set_kernel_compiler_for_tests(KernelCompiler* compiler);
void reset_kernel_compiler_for_tests();

}  // namespace softgpu
