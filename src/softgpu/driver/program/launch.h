// Kernel launches: validation as the real driver does it, packed parameters, execution through the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/exec/program/engine.h"

namespace softgpu::driver {

class Context;
class Function;
class Module;

// A validated launch, ready to be executed any number of times.
struct KernelLaunch {
  std::shared_ptr<const Module> module;
  std::shared_ptr<Function> function;
  softgpu::Dim3 grid, block;
  std::uint32_t dynamic_shared = 0;
  bool cooperative = false;
  std::vector<std::byte> parameters;
  std::vector<void*> pointers;  // to each of the parameters: how a graph's node shows them

  void point_to_parameters();
  // Runs all blocks in the calling thread and the engine's. Throws Error with the fault.
  void run() const;
};

// The function behind a handle, which may be a library kernel's: then that of the context, or of the current
// one. Throws Error(INVALID_HANDLE).
std::shared_ptr<Function> resolve_function(CUfunction handle,
                                           const std::shared_ptr<Context>& context = nullptr);

struct LaunchShape {
  softgpu::Dim3 grid, block;
  unsigned dynamic_shared = 0;
  bool cooperative = false;
};

// Throws Error: INVALID_VALUE for a shape no device takes, LAUNCH_OUT_OF_RESOURCES for one this kernel does
// not take, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_VALUE for missing parameters.
std::shared_ptr<const KernelLaunch> prepare_launch(const std::shared_ptr<Function>& function,
                                                   const LaunchShape& shape, void** parameters, void** extra);
Operation make_launch(std::shared_ptr<const KernelLaunch> launch);

// Blocks of this shape that one multiprocessor holds at the same time; 0 if not even one fits.
int blocks_per_multiprocessor(const Function& function, unsigned threads_per_block,
                              std::size_t dynamic_shared);

}  // namespace softgpu::driver
