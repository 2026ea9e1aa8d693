// Numbers that a function of cuSOLVER leaves in host memory: the only calls of it that wait.
#pragma once

#include <cstdint>

#include "libraries/cusolver/handle.h"
#include "libraries/shared/driver.h"

namespace gpupool::cusolver {

/// Posts what `post` posts for doubles in device memory, and copies them to `into`. A stream that is captured
/// does not let it.
template <class Post>
int with_residuals(const Handle& handle, std::int64_t count, double* into, Post post) {
  const libraries::Driver* driver = nullptr;
  if (const CUresult bad = libraries::enter(driver); bad != CUDA_SUCCESS) return status_of(bad);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(double);
  CUdeviceptr place = 0;
  if (const CUresult bad = driver->cuMemAlloc_v2(&place, bytes); bad != CUDA_SUCCESS) return status_of(bad);
  int status = post(place);
  if (status == success) {
    status = status_of(libraries::read_back(*driver, into, place, bytes, handle.stream));
  }
  driver->cuMemFree_v2(place);
  return status;
}

}  // namespace gpupool::cusolver
