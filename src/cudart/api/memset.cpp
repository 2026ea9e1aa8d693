// Filling device memory.
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

cudaError_t fill(void* pointer, int value, size_t count, CUstream stream) {
  if (count == 0) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMemsetD8Async(as<CUdeviceptr>(pointer), static_cast<unsigned char>(value), count, stream);
  });
}

cudaError_t fill_rows(void* pointer, size_t pitch, int value, size_t width, size_t height, CUstream stream) {
  if (width == 0 || height == 0) return enter();
  if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
  return forward([&](const EntryPoints& d) {
    return d.cuMemsetD2D8Async(as<CUdeviceptr>(pointer), pitch, static_cast<unsigned char>(value), width,
                               height, stream);
  });
}

cudaError_t fill_box(const cudaPitchedPtr& to, int value, const cudaExtent& extent, CUstream stream) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return enter();
  // Slices without rows between them are one tall rectangle.
  if (extent.height == to.ysize || extent.depth == 1)
    return fill_rows(to.ptr, to.pitch, value, extent.width, extent.height * extent.depth, stream);
  for (size_t z = 0; z < extent.depth; ++z) {
    char* const slice = static_cast<char*>(to.ptr) + z * to.pitch * to.ysize;
    if (const cudaError_t bad = fill_rows(slice, to.pitch, value, extent.width, extent.height, stream);
        bad != cudaSuccess)
      return bad;
  }
  return cudaSuccess;
}

}  // namespace

// Like the driver's, the functions without `Async` do not wait for device memory to be filled: work that
// follows on the stream is ordered behind them.
cudaError_t cudaMemset(void* devPtr, int value, size_t count, CUstream default_stream) {
  if (default_stream != nullptr) return fill(devPtr, value, count, default_stream);
  if (count == 0) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMemsetD8_v2(as<CUdeviceptr>(devPtr), static_cast<unsigned char>(value), count);
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return fill(devPtr, value, count, stream);
}

cudaError_t cudaMemset2D(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                         CUstream default_stream) {
  return fill_rows(devPtr, pitch, value, width, height, default_stream);
}

cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return fill_rows(devPtr, pitch, value, width, height, stream);
}

cudaError_t cudaMemset3D(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                         CUstream default_stream) {
  return fill_box(pitchedDevPtr, value, extent, default_stream);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return fill_box(pitchedDevPtr, value, extent, stream);
}

}  // namespace gpupool::cudart
