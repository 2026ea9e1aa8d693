// The one exception type of the driver. It never crosses the C boundary: entry.h turns it into the return
// value.
#pragma once

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Error {
 public:
  explicit Error(CUresult code) : code_(code) {}
  CUresult code() const { return code_; }

 private:
  CUresult code_;
};

[[noreturn]] inline void fail(CUresult code) {
  throw Error(code);
}

inline void require(bool condition, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
  if (!condition) fail(otherwise);
}

// Name and text of a CUresult, or nullptr for a number that is not one.
const char* error_name(CUresult code);
const char* error_text(CUresult code);

}  // namespace softgpu::driver
