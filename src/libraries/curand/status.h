// curandStatus_t, and what the driver's results are in it (curand.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"

namespace gpupool::curand {

enum Status : int {
  success = 0,
  not_initialized = 101,
  allocation_failed = 102,
  type_error = 103,
  out_of_range = 104,
  length_not_multiple = 105,
  launch_failure = 201,
  initialization_failed = 203,
  arch_mismatch = 204,
  internal_error = 999,
};

inline Status status_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return success;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return allocation_failed;
    case CUDA_ERROR_NOT_SUPPORTED:
      return arch_mismatch;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return initialization_failed;
    default:
      return launch_failure;
  }
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(allocation_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::curand
