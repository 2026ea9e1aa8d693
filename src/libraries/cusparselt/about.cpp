// What programs ask without a matrix: the version and the words of a status.
#include "libraries/cusparse/status.h"
#include "libraries/shared/export.h"
#include "libraries/shared/version.h"

using namespace gpupool::cusparse;

namespace {

constexpr gpupool::libraries::Version version{0, 8, 1};

}  // namespace

/// There are no handles yet, so none is looked at.
GPUPOOL_LIBRARY_EXPORT int cusparseLtGetVersion(const void*, int* value) {
  return gpupool::libraries::read_version(version, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT int cusparseLtGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(version, property, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT const char* cusparseLtGetErrorName(int status) {
  return name_of(status);
}
GPUPOOL_LIBRARY_EXPORT const char* cusparseLtGetErrorString(int status) {
  return text_of(status);
}
