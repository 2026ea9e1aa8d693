// What one call of one rank moves: every collective, and a send or a receive, is such a plan.
#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "libraries/nccl/elements.h"
#include "libraries/nccl/factors.h"
#include "libraries/nccl/mesh.h"

namespace gpupool::nccl {

/// Blocks of `count` elements in device memory go to ranks and come from ranks. What comes is stored where
/// `from` says, or reduced, in the order of ranks, into `result`. This rank's own place in both is a copy.
struct Plan {
  Lane lane = Lane::collective;
  Type type = Type::i8;
  std::size_t count = 0;
  std::vector<CUdeviceptr> to;    ///< of each rank; 0: nothing goes there
  std::vector<CUdeviceptr> from;  ///< of each rank; 0: nothing comes from there
  std::optional<Reduction> reduction;
  std::optional<Factor> factor;  ///< of what this rank gives
  CUdeviceptr result = 0;
  CUstream stream = nullptr;
};

}  // namespace gpupool::nccl
