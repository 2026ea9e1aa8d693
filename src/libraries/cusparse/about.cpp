// What programs ask without a matrix: the version and the words of a status.
#include "libraries/cusparse/status.h"
#include "libraries/shared/export.h"
#include "libraries/shared/version.h"

using namespace gpupool::cusparse;

namespace {

/// CUDA 12 and 13 both have a cuSPARSE 12: it is no older than what programs of either were built with.
constexpr gpupool::libraries::Version version{12, 6, 3};

}  // namespace

/// As with NVIDIA's library no handle is looked at.
GPUPOOL_LIBRARY_EXPORT int cusparseGetVersion(void*, int* value) {
  return gpupool::libraries::read_version(version, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(version, property, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT const char* cusparseGetErrorName(int status) {
  return name_of(status);
}
GPUPOOL_LIBRARY_EXPORT const char* cusparseGetErrorString(int status) {
  return text_of(status);
}
