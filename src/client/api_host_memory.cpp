// Pinned and registered host memory.
#include <cuda.h>

#include "client/call.h"
#include "client/export.h"
#include "client/host_memory.h"
#include "client/refuse.h"

using namespace gpupool::client;

extern "C" {

GPUPOOL_EXPORT CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pp == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return host_memory().allocate(bytesize, Flags, *pp);
}

GPUPOOL_EXPORT CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return cuMemHostAlloc(pp, bytesize, 0);
}

GPUPOOL_EXPORT CUresult cuMemFreeHost(void* p) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return host_memory().free(p);
}

GPUPOOL_EXPORT CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (p == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return host_memory().add(p, bytesize, Flags);
}

GPUPOOL_EXPORT CUresult cuMemHostUnregister(void* p) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return host_memory().remove(p);
}

GPUPOOL_EXPORT CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto region = host_memory().find(p);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = region->flags;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr*, void* p, unsigned int) {
  if (!host_memory().find(p)) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(
      refuse("cuMemHostGetDevicePointer_v2",
             "the device is in another machine and cannot reach host memory; copy instead"));
}

}  // extern "C"
