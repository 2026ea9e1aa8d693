// cublasStatus_t, its names and texts, and what the driver's results are in it (cublas_api.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"
#include "libraries/shared/status.h"

namespace gpupool::cublas {

enum Status : int {
  success = 0,
  not_initialized = 1,
  alloc_failed = 3,
  invalid_value = 7,
  arch_mismatch = 8,
  mapping_error = 11,
  execution_failed = 13,
  internal_error = 14,
  not_supported = 15,
  license_error = 16,
};

struct StatusTexts {
  const char* name;
  const char* text;
};

inline StatusTexts texts_of(int status) {
  switch (status) {
    case success:
      return {"CUBLAS_STATUS_SUCCESS", "the operation was successful"};
    case not_initialized:
      return {"CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialised"};
    case alloc_failed:
      return {"CUBLAS_STATUS_ALLOC_FAILED", "memory could not be allocated"};
    case invalid_value:
      return {"CUBLAS_STATUS_INVALID_VALUE", "an argument has a value that is not possible"};
    case arch_mismatch:
      return {"CUBLAS_STATUS_ARCH_MISMATCH", "the GPU lacks a feature that the operation needs"};
    case mapping_error:
      return {"CUBLAS_STATUS_MAPPING_ERROR", "memory of the GPU could not be accessed"};
    case execution_failed:
      return {"CUBLAS_STATUS_EXECUTION_FAILED", "the operation failed on the GPU"};
    case internal_error:
      return {"CUBLAS_STATUS_INTERNAL_ERROR", "an operation inside the library failed"};
    case not_supported:
      return {"CUBLAS_STATUS_NOT_SUPPORTED", "the operation is not supported with these arguments"};
    case license_error:
      return {"CUBLAS_STATUS_LICENSE_ERROR", "the licence could not be checked"};
    default:
      return {"an unknown cuBLAS status", "an unknown cuBLAS status"};
  }
}
inline const char* name_of(int status) {
  return texts_of(status).name;
}
inline const char* text_of(int status) {
  return texts_of(status).text;
}

inline Status status_of(CUresult result) {
  return libraries::status_of(result, libraries::Outcomes<Status>{success, alloc_failed, not_supported,
                                                                  not_initialized, execution_failed});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(alloc_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::cublas
