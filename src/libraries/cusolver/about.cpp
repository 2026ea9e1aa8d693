// What programs ask without a matrix: the version.
#include "libraries/shared/export.h"
#include "libraries/shared/version.h"

namespace {

constexpr int success = 0, invalid_value = 3;  // of cusolverStatus_t

/// The last one of CUDA 12, the first one of CUDA 13.
constexpr gpupool::libraries::Version version =
    GPUPOOL_CUDA_MAJOR == 12 ? gpupool::libraries::Version{11, 7, 5} : gpupool::libraries::Version{12, 0, 4};

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusolverGetVersion(int* value) {
  return gpupool::libraries::read_version(version, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT int cusolverGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(version, property, value) ? success : invalid_value;
}
