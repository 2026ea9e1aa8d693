// A result as a worker tells it is any number.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpupool::client {

/// What no driver says becomes CUDA_ERROR_UNKNOWN, the largest of its errors: the enumeration need not even
/// be able to hold it.
constexpr CUresult worker_result(std::int32_t told) {
  return told >= CUDA_SUCCESS && told <= CUDA_ERROR_UNKNOWN ? static_cast<CUresult>(told)
                                                            : CUDA_ERROR_UNKNOWN;
}

}  // namespace gpupool::client
