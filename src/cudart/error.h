// Errors: the driver's as the runtime's, and their names.
#pragma once

#include <cstddef>

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

struct ErrorName {
  int value;
  const char* name;
  const char* text;
};
extern const ErrorName error_names[];
extern const std::size_t error_name_count;

/// The runtime's error for a driver's result. Nearly all values are shared on purpose.
cudaError_t translate_failure(CUresult result);
inline cudaError_t translate(CUresult result) {
  return result == CUDA_SUCCESS ? cudaSuccess : translate_failure(result);
}

/// Null for a value that is no error of this version.
const ErrorName* find_error(int value);

/// Whether an error stays until the device is reset.
bool is_sticky(cudaError_t error);

/// Says once what is not supported, and returns cudaErrorNotSupported.
cudaError_t refuse(const char* function, const char* reason);

}  // namespace gpupool::cudart
