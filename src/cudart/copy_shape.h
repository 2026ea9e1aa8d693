// Two- and three-dimensional copies in the driver's terms.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

inline bool is_copy_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

/// The address `offset` bytes into a variable of the program, for a copy of `count` bytes into it, or from
/// it. An error where they do not fit, or the direction is another.
cudaError_t place_to_fill(const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                          void*& address);
cudaError_t place_to_read(const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                          void*& address);

/// Waits for `stream` after a copy that was put on it, when the caller's function waits.
cudaError_t finish(cudaError_t result, CUstream stream, bool wait);

inline bool from_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
}
inline bool to_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
}

/// `Shape` is CUDA_MEMCPY2D or CUDA_MEMCPY3D: the fields of both ends have the same names.
template <class Shape>
void set_source(Shape& shape, const void* src, size_t pitch, cudaMemcpyKind kind) {
  shape.srcMemoryType = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
                        : from_host(kind)         ? CU_MEMORYTYPE_HOST
                                                  : CU_MEMORYTYPE_DEVICE;
  shape.srcHost = src;
  shape.srcDevice = (CUdeviceptr)src;
  shape.srcPitch = pitch;
}

template <class Shape>
void set_destination(Shape& shape, void* dst, size_t pitch, cudaMemcpyKind kind) {
  shape.dstMemoryType = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
                        : to_host(kind)           ? CU_MEMORYTYPE_HOST
                                                  : CU_MEMORYTYPE_DEVICE;
  shape.dstHost = dst;
  shape.dstDevice = (CUdeviceptr)dst;
  shape.dstPitch = pitch;
}

/// A three-dimensional copy; asks the driver for the element sizes of arrays.
cudaError_t driver_shape(const cudaMemcpy3DParms& parameters, CUDA_MEMCPY3D& shape);

/// The same description read back.
cudaMemcpy3DParms runtime_shape(const CUDA_MEMCPY3D& shape);

}  // namespace gpupool::cudart
