// Variables of the program that live on the device.
#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "cudart/registry.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// The address `offset` bytes into a variable, when `count` bytes fit there.
cudaError_t inside(const void* symbol, size_t count, size_t offset, void*& address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  if (const cudaError_t bad = variable_address(symbol, base, size); bad != cudaSuccess) return bad;
  if (offset > size || count > size - offset) return cudaErrorInvalidValue;
  address = as<void*>(base + offset);
  return cudaSuccess;
}

}  // namespace

cudaError_t place_to_fill(const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                          void*& address) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  return inside(symbol, count, offset, address);
}

cudaError_t place_to_read(const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                          void*& address) {
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  return inside(symbol, count, offset, address);
}

cudaError_t cudaGetSymbolAddress(void** devPtr, const void* symbol) {
  if (devPtr == nullptr) return cudaErrorInvalidValue;
  return inside(symbol, 0, 0, *devPtr);
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  if (size == nullptr) return cudaErrorInvalidValue;
  CUdeviceptr address = 0;
  return variable_address(symbol, address, *size);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t count, size_t offset,
                               cudaMemcpyKind kind, CUstream default_stream) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_fill(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaMemcpy(address, src, count, kind, default_stream);
}

cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, size_t count, size_t offset,
                                 cudaMemcpyKind kind, CUstream default_stream) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_read(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaMemcpy(dst, address, count, kind, default_stream);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_fill(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaMemcpyAsync(address, src, count, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  void* address = nullptr;
  if (const cudaError_t bad = place_to_read(symbol, count, offset, kind, address); bad != cudaSuccess)
    return bad;
  return cudart::cudaMemcpyAsync(dst, address, count, kind, stream);
}

}  // namespace gpupool::cudart
