// A context that is current for a while.
#pragma once

#include <cuda.h>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Makes a context current for as long as it lives.
class Current {
 public:
  Current(const DriverApi& api, CUcontext context) : api_(api), error_(api.cuCtxPushCurrent_v2_(context)) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (error_ == CUDA_SUCCESS) static_cast<void>(api_.cuCtxPopCurrent_v2_(&popped));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] CUresult error() const { return error_; }

 private:
  const DriverApi& api_;
  CUresult error_;
};

}  // namespace gpupool::worker
