// Names of CUresult values, generated from cuda.h.
#pragma once

#include <cstddef>

namespace gpupool::client {

struct ErrorName {
  int value;
  const char* name;
  const char* text;
};
extern const ErrorName error_names[];  ///< sorted by value
extern const std::size_t error_name_count;
extern const int header_version;  ///< CUDA_VERSION of the header this library was built from

}  // namespace gpupool::client
