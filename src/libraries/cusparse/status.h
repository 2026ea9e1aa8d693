// cusparseStatus_t (cusparse.h), which cuSPARSELt has too.
#pragma once

namespace gpupool::cusparse {

enum Status : int {
  success = 0,
  not_initialized = 1,
  alloc_failed = 2,
  invalid_value = 3,
  arch_mismatch = 4,
  mapping_error = 5,
  execution_failed = 6,
  internal_error = 7,
  matrix_type_not_supported = 8,
  zero_pivot_found = 9,
  not_supported = 10,
  insufficient_resources = 11,
};

inline const char* name_of(int status) {
  static constexpr const char* names[] = {
      "CUSPARSE_STATUS_SUCCESS",
      "CUSPARSE_STATUS_NOT_INITIALIZED",
      "CUSPARSE_STATUS_ALLOC_FAILED",
      "CUSPARSE_STATUS_INVALID_VALUE",
      "CUSPARSE_STATUS_ARCH_MISMATCH",
      "CUSPARSE_STATUS_MAPPING_ERROR",
      "CUSPARSE_STATUS_EXECUTION_FAILED",
      "CUSPARSE_STATUS_INTERNAL_ERROR",
      "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
      "CUSPARSE_STATUS_ZERO_PIVOT",
      "CUSPARSE_STATUS_NOT_SUPPORTED",
      "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
  };
  return status >= success && status <= insufficient_resources ? names[status] : "an unknown cuSPARSE status";
}

inline const char* text_of(int status) {
  static constexpr const char* texts[] = {
      "success",
      "the library has no handle that was made",
      "memory is lacking",
      "an argument has a value that is not allowed",
      "the device lacks what the function needs",
      "memory cannot be reached",
      "the operation could not be submitted or did not end",
      "the library went wrong",
      "the function does not take matrices of this type",
      "a pivot is zero",
      "the function is not supported",
      "the device lacks resources",
  };
  return status >= success && status <= insufficient_resources ? texts[status] : name_of(status);
}

}  // namespace gpupool::cusparse
