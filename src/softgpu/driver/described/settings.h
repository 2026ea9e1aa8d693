// What the environment says about the software GPU, read once when the driver is made.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "softgpu/exec/program/checks.h"

namespace softgpu::driver {

struct Settings {
  bool launch_blocking = false;    // CUDA_LAUNCH_BLOCKING=1: a launch waits for its kernel
  int cards = 1;                   // GPUPOOL_SOFTGPU_DEVICES, 0..16: in the machine
  std::vector<int> visible = {0};  // CUDA_VISIBLE_DEVICES, default: all, in order
  std::size_t memory_bytes = std::size_t{8192} << 20;  // GPUPOOL_SOFTGPU_MEMORY_MIB per device
  int capability_major = 12;                           // GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY, e.g. "8.6"
  int capability_minor = 0;
  unsigned threads = 1;  // GPUPOOL_SOFTGPU_THREADS, default: the cores this process may use

  // GPUPOOL_SOFTGPU_WATCHDOG_SECONDS: a kernel that has not ended by then is ended; 0: never.
  std::chrono::milliseconds watchdog = std::chrono::seconds(300);
  // GPUPOOL_SOFTGPU_CHECK: names of checks with commas between them, or "all".
  softgpu::Checks checks;

  // Where PTX for libraries of machine code is kept: GPUPOOL_SOFTGPU_KERNEL_PACKS, else
  // $XDG_DATA_HOME/gpupool/kernel-packs, else ~/.local/share/gpupool/kernel-packs; empty if none is known.
  std::string kernel_packs;

  // GPUPOOL_SOFTGPU_EXECUTE=0: launches are checked and do nothing. For measuring what a test suite says of a
  // device that computes nothing; cuInit warns about it.
  bool execute = true;

  // Read by the engine's compiler itself (jit/kernel_compiler.h): GPUPOOL_SOFTGPU_JIT,
  // GPUPOOL_SOFTGPU_JIT_CACHE, GPUPOOL_SOFTGPU_LLVM, GPUPOOL_SOFTGPU_LOG.

  // Values that cannot be used fall back to the default; one line on stderr says which.
  static Settings from_environment();

  int capability() const { return capability_major * 10 + capability_minor; }
};

}  // namespace softgpu::driver
