// cusolverStatus_t, and what the driver's results are in it (cusolver_common.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"
#include "libraries/shared/status.h"

namespace gpupool::cusolver {

enum Status : int {
  success = 0,
  not_initialized = 1,
  alloc_failed = 2,
  invalid_value = 3,
  execution_failed = 6,
  internal_error = 7,
  not_supported = 9,
};

inline Status status_of(CUresult result) {
  return libraries::status_of(result, libraries::Outcomes<Status>{success, alloc_failed, not_supported,
                                                                  not_initialized, execution_failed});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(alloc_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::cusolver
