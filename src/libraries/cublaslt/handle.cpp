// Handles hold nothing; a cublasHandle_t will do as well, as the documentation says.
#include <cstddef>

#include "libraries/cublas/status.h"
#include "libraries/cublas/version.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;

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
  return std::size_t{version_number};
}
GPUPOOL_LIBRARY_EXPORT std::size_t cublasLtGetCudartVersion() {
  return GPUPOOL_CUDA_MAJOR * 1000;
}
GPUPOOL_LIBRARY_EXPORT int cublasLtGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(own_version, property, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT const char* cublasLtGetStatusName(int status) {
  return name_of(status);
}
GPUPOOL_LIBRARY_EXPORT const char* cublasLtGetStatusString(int status) {
  return text_of(status);
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
