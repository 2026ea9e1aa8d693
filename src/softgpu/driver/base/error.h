// The one exception type of the driver. It never crosses the C boundary: entry.h turns it into the return
// value.
#pragma once

#include <string>
#include <utility>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Error {
 public:
  explicit Error(CUresult code, std::string detail = {}) : code_(code), detail_(std::move(detail)) {}
  CUresult code() const { return code_; }
  // What there is to say beyond the number; may be empty.
  const std::string& detail() const { return detail_; }

 private:
  CUresult code_;
  std::string detail_;
};

[[noreturn]] inline void fail(CUresult code, std::string detail = {}) {
  throw Error(code, std::move(detail));
}

inline void require(bool condition, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
  if (!condition) fail(otherwise);
}

// Name and text of a CUresult, or nullptr for a number that is not one.
const char* error_name(CUresult code);
const char* error_text(CUresult code);

}  // namespace softgpu::driver
