// Allocation, and what a pointer is.
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// Empty requests succeed with a null pointer in the runtime and fail in the driver.
cudaError_t nothing(void** pointer) {
  *pointer = nullptr;
  return enter();
}

cudaError_t host_alloc(void** pointer, size_t size, unsigned flags) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  if (size == 0) return nothing(pointer);
  return forward([&](const EntryPoints& d) { return d.cuMemHostAlloc(pointer, size, flags); });
}

}  // namespace

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  if (devPtr == nullptr) return cudaErrorInvalidValue;
  if (size == 0) return nothing(devPtr);
  CUdeviceptr made = 0;
  const cudaError_t result = forward([&](const EntryPoints& d) { return d.cuMemAlloc_v2(&made, size); });
  *devPtr = result == cudaSuccess ? reinterpret_cast<void*>(made) : nullptr;
  return result;
}

cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags) {
  if (devPtr == nullptr || size == 0) return cudaErrorInvalidValue;
  return forward([&](const EntryPoints& d) {
    return d.cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(devPtr), size, flags);
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return host_alloc(ptr, size, 0);
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  return host_alloc(pHost, size, flags);
}

cudaError_t cudaFree(void* devPtr) {
  // Freeing nothing is the customary way to ask for a context.
  if (devPtr == nullptr) return enter();
  return forward([&](const EntryPoints& d) { return d.cuMemFree_v2(as<CUdeviceptr>(devPtr)); });
}

cudaError_t cudaFreeHost(void* ptr) {
  if (ptr == nullptr) return cudaSuccess;
  return forward([&](const EntryPoints& d) { return d.cuMemFreeHost(ptr); });
}

cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
  if (devPtr == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
  *pitch = 0;
  if (width == 0 || height == 0) return nothing(devPtr);
  // The widest element that a thread can access at once, so every row begins well for all narrower ones.
  constexpr unsigned element_bytes = 16;
  return forward([&](const EntryPoints& d) {
    return d.cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(devPtr), pitch, width, height, element_bytes);
  });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitchedDevPtr, cudaExtent extent) {
  if (pitchedDevPtr == nullptr) return cudaErrorInvalidValue;
  size_t rows = 0;
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return cudaErrorMemoryAllocation;
  *pitchedDevPtr = {nullptr, 0, extent.width, extent.height};
  return cudart::cudaMallocPitch(&pitchedDevPtr->ptr, &pitchedDevPtr->pitch, extent.width, rows);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  if (attributes == nullptr) return cudaErrorInvalidValue;
  unsigned type = 0, managed = 0;
  int device = -2;  // of memory that CUDA does not know
  void *on_device = nullptr, *on_host = nullptr;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* answers[] = {&type, &managed, &device, &on_device, &on_host};
  const cudaError_t result = forward([&](const EntryPoints& d) {
    return d.cuPointerGetAttributes(5, wanted, answers, as<CUdeviceptr>(ptr));
  });
  if (result != cudaSuccess) return result;
  *attributes = {};
  attributes->type = managed != 0                   ? cudaMemoryTypeManaged
                     : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                     : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                    : cudaMemoryTypeUnregistered;
  attributes->device = attributes->type == cudaMemoryTypeUnregistered ? -2 : device;
  attributes->devicePointer = on_device;
  attributes->hostPointer = attributes->type == cudaMemoryTypeUnregistered ? const_cast<void*>(ptr) : on_host;
  return cudaSuccess;
}

}  // namespace gpupool::cudart
