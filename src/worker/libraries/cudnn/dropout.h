// Dropout by our own kernels: cuDNN's has other numbers, and states of another size than programs have made.
#pragma once

#include <cstdint>

#include "libraries/operations/dropout.h"
#include "worker/libraries/execution.h"

namespace gpupool::worker {

/// What is left out of some elements, and where the mask of one bit for each lies.
struct Masked {
  std::uint64_t mask = 0;
  std::uint64_t states = 0;  // 0: the mask is there already, or everything is kept
  double rate = 0;
  operations::Dropping what = operations::Dropping::forward;
  std::uint64_t first = 0;  // the number of the first element among those that are drawn together
};

/// `into` = `from` / (1 - rate), or 0 where it is left out; both may be the same. The states stay where they
/// are.
CUresult drop(const Execution& x, const operations::Tensor& from, const operations::Tensor& into,
              const Masked& how);

/// After so many numbers were drawn.
CUresult move_states_on(const Execution& x, std::uint64_t states, std::uint64_t drawn);

}  // namespace gpupool::worker
