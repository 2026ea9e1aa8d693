// curandStatus_t, and what the driver's results are in it (curand.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"
#include "libraries/shared/status.h"

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
  return libraries::status_of(result, libraries::Outcomes<Status>{success, allocation_failed, arch_mismatch,
                                                                  initialization_failed, launch_failure});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(allocation_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::curand
