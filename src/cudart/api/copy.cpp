// Copies of linear memory.
#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// The kind is only checked: the driver knows whose an address is, and a wrong kind is harmless then.
cudaError_t copy_async(void* dst, const void* src, size_t count, cudaMemcpyKind kind, CUstream stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (count == 0) return enter();
  return forward([&](const EntryPoints& d) {
    return d.cuMemcpyAsync(as<CUdeviceptr>(dst), as<CUdeviceptr>(src), count, stream);
  });
}

cudaError_t copy_2d(const CUDA_MEMCPY2D& shape, CUstream stream, bool wait, CUstream default_stream) {
  if (shape.WidthInBytes == 0 || shape.Height == 0) return enter();
  if (wait && default_stream == nullptr)
    return forward([&](const EntryPoints& d) { return d.cuMemcpy2DUnaligned_v2(&shape); });
  return finish(forward([&](const EntryPoints& d) { return d.cuMemcpy2DAsync_v2(&shape, stream); }), stream,
                wait);
}

cudaError_t copy_rows(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                      cudaMemcpyKind kind, CUstream stream, bool wait) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > dpitch || width > spitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D shape{};
  set_source(shape, src, spitch, kind);
  set_destination(shape, dst, dpitch, kind);
  shape.WidthInBytes = width;
  shape.Height = height;
  return copy_2d(shape, stream, wait, stream);
}

}  // namespace

cudaError_t finish(cudaError_t result, CUstream stream, bool wait) {
  if (result != cudaSuccess || !wait) return result;
  return forward([&](const EntryPoints& d) { return d.cuStreamSynchronize(stream); });
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                       CUstream default_stream) {
  if (default_stream != nullptr)
    return finish(copy_async(dst, src, count, kind, default_stream), default_stream, true);
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (count == 0) return enter();
  return forward(
      [&](const EntryPoints& d) { return d.cuMemcpy(as<CUdeviceptr>(dst), as<CUdeviceptr>(src), count); });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_async(dst, src, count, kind, stream);
}

cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height, cudaMemcpyKind kind, CUstream default_stream) {
  return copy_rows(dst, dpitch, src, spitch, width, height, kind, default_stream, true);
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(dst, dpitch, src, spitch, width, height, kind, stream, false);
}

cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
  CUcontext to = nullptr, from = nullptr;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = primary_context(dstDevice, to); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = primary_context(srcDevice, from); bad != cudaSuccess) return bad;
  if (count == 0) return cudaSuccess;
  return forward([&](const EntryPoints& d) {
    return d.cuMemcpyPeer(as<CUdeviceptr>(dst), to, as<CUdeviceptr>(src), from, count);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
  CUcontext to = nullptr, from = nullptr;
  if (const cudaError_t bad = enter(); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = primary_context(dstDevice, to); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = primary_context(srcDevice, from); bad != cudaSuccess) return bad;
  if (count == 0) return cudaSuccess;
  return forward([&](const EntryPoints& d) {
    return d.cuMemcpyPeerAsync(as<CUdeviceptr>(dst), to, as<CUdeviceptr>(src), from, count, stream);
  });
}

}  // namespace gpupool::cudart
