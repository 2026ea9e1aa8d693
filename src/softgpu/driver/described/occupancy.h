// How many blocks of a kernel a multiprocessor of the reported compute capability holds at once: the CUDA
// programming guide's rules, as NVIDIA's cuda_occupancy.h computes them. Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "softgpu/driver/described/device_limits.h"

namespace softgpu::driver {

struct KernelNeeds {
  int registers;                     // per thread
  unsigned threads_per_block;        // the most that a block of it may have
  std::size_t static_shared;         // bytes
  std::size_t dynamic_shared_limit;  // bytes, as cuFuncSetAttribute allows it
};

// 0 when no block fits.
int active_blocks(const DeviceLimits& limits, const KernelNeeds& kernel, unsigned threads_per_block,
                  std::size_t dynamic_shared);

// The most dynamic shared memory with which so many blocks fit; nothing when they do not even without any.
std::optional<std::size_t> available_dynamic_shared(const DeviceLimits& limits, const KernelNeeds& kernel,
                                                    int blocks, unsigned threads_per_block);

// The most registers per thread with which a block of so many threads can be launched.
int most_registers(const DeviceLimits& limits, unsigned threads_per_block);

}  // namespace softgpu::driver
