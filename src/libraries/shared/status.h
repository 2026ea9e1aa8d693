// What a library answers for the driver's results, in the numbers of its own.
#pragma once

#include <cuda.h>

namespace gpupool::libraries {

/// `Status`: the library's. `no_device`: there is none, or no share of one.
template <class Status>
struct Outcomes {
  Status success, out_of_memory, not_supported, no_device, failed;
};

template <class Status>
constexpr Status status_of(CUresult result, const Outcomes<Status>& outcomes) {
  switch (result) {
    case CUDA_SUCCESS:
      return outcomes.success;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return outcomes.out_of_memory;
    case CUDA_ERROR_NOT_SUPPORTED:
      return outcomes.not_supported;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return outcomes.no_device;
    default:
      return outcomes.failed;
  }
}

}  // namespace gpupool::libraries
