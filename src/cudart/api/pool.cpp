// Stream-ordered allocation.
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  if (devPtr == nullptr) return cudaErrorInvalidValue;
  *devPtr = nullptr;
  if (size == 0) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(devPtr), size, hStream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
  if (ptr == nullptr) return cudaErrorInvalidValue;
  *ptr = nullptr;
  if (size == 0) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(ptr), size, memPool, stream);
  });
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  if (devPtr == nullptr) return enter();
  return forward([&](const EntryPoints& d) { return d.cuMemFreeAsync(as<CUdeviceptr>(devPtr), hStream); });
}

}  // namespace gpupool::cudart
