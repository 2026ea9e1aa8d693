// Handles hold nothing; a cublasHandle_t will do as well, as the documentation says.
#include <cstddef>

#include "libraries/cublas/status.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;

namespace {

constexpr int version_parts[] = {GPUPOOL_CUDA_MAJOR, 0, 0};

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cublasLtCreate(void** handle) {
  return guarded([&]() -> int {
    if (handle == nullptr) return invalid_value;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new int{0};
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cublasLtDestroy(void* handle) {
  if (handle == nullptr) return not_initialized;
  delete static_cast<int*>(handle);
  return success;
}
GPUPOOL_LIBRARY_EXPORT std::size_t cublasLtGetVersion() {
  return version_parts[0] * 10000 + version_parts[1] * 100 + version_parts[2];
}
GPUPOOL_LIBRARY_EXPORT std::size_t cublasLtGetCudartVersion() {
  return GPUPOOL_CUDA_MAJOR * 1000;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtGetProperty(int property, int* value) {
  if (value == nullptr || property < 0 || property > 2) return invalid_value;
  *value = version_parts[property];
  return success;
}
// There is no log of its own.
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerSetCallback(void*) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerSetFile(void*) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerOpenFile(const char*) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerSetLevel(int) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerSetMask(int) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtLoggerForceDisable() {
  return success;
}
