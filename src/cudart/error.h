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

/// The result of a call that waits. A launch without device code that a library has peeked at and cleared is
/// reported by the next of them, once: CUB does so, returns the error, and PyTorch looks for it in
/// cudaGetLastError alone. Its results would be wrong without a word.
cudaError_t result_of_waiting(cudaError_t result);

/// Says once what is not supported, and returns cudaErrorNotSupported.
cudaError_t refuse(const char* function, const char* reason);

}  // namespace gpupool::cudart
