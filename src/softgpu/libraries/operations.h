// One function for each operation. Each does the parts that are the block's own.
#pragma once

#include <cstdint>

#include "libraries/operations/all.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

/// A block's parts of an operation: every `blocks`-th one, from `first` on.
struct Parts {
  std::uint64_t first = 0, blocks = 1;

  template <class F>
  void each(std::uint64_t parts, F f) const {
    for (std::uint64_t part = first; part < parts; part += blocks) f(part);
  }
};

void run(const gpupool::operations::Gemm& operation, const Parts& parts, const Memory& memory);

}  // namespace softgpu::libraries
