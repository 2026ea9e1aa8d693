// cufftResult, and what the driver's results are in it (cufft.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"
#include "libraries/shared/status.h"

namespace gpupool::cufft {

enum Status : int {
  success = 0,
  invalid_plan = 1,
  alloc_failed = 2,
  invalid_type = 3,
  invalid_value = 4,
  internal_error = 5,
  exec_failed = 6,
  setup_failed = 7,
  invalid_size = 8,
  not_supported = 16,
};

inline Status status_of(CUresult result) {
  return libraries::status_of(
      result, libraries::Outcomes<Status>{success, alloc_failed, not_supported, setup_failed, exec_failed});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(alloc_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::cufft
