// The answer of functions that this driver does not have.
#pragma once

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

// CUDA_ERROR_NOT_SUPPORTED; the name goes to stderr the first time.
CUresult not_supported(const char* function) noexcept;

}  // namespace softgpu::driver
