// Copies to, from and between CUDA arrays.
#include <algorithm>

#include "cudart/array_format.h"
#include "cudart/call.h"
#include "cudart/copy_shape.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

CUarray array_of(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
}

struct Position {
  size_t x, y;  // bytes, rows
};

void set_source_array(CUDA_MEMCPY2D& shape, cudaArray_const_t array, Position at) {
  shape.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.srcArray = array_of(array);
  shape.srcXInBytes = at.x;
  shape.srcY = at.y;
}

void set_destination_array(CUDA_MEMCPY2D& shape, cudaArray_const_t array, Position at) {
  shape.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.dstArray = array_of(array);
  shape.dstXInBytes = at.x;
  shape.dstY = at.y;
}

cudaError_t run(CUDA_MEMCPY2D& shape, size_t width, size_t height, CUstream stream, bool wait) {
  shape.WidthInBytes = width;
  shape.Height = height;
  if (width == 0 || height == 0) return enter();
  if (wait && stream == nullptr)
    return forward([&](const EntryPoints& d) { return d.cuMemcpy2D_v2(&shape); });
  return finish(forward([&](const EntryPoints& d) { return d.cuMemcpy2DAsync_v2(&shape, stream); }), stream,
                wait);
}

cudaError_t row_bytes(cudaArray_const_t array, size_t& bytes) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  const cudaError_t bad = forward(
      [&](const EntryPoints& d) { return d.cuArray3DGetDescriptor_v2(&descriptor, array_of(array)); });
  bytes = descriptor.Width * format_bytes(descriptor.Format) * descriptor.NumChannels;
  return bad == cudaSuccess && bytes == 0 ? cudaErrorInvalidValue : bad;
}

/// A run of bytes that wraps around the rows of an array, cut into rectangles: `copy(offset, at, width,
/// rows)`.
template <class Copy>
cudaError_t in_rectangles(cudaArray_const_t array, Position at, size_t count, Copy&& copy) {
  size_t row = 0;
  if (const cudaError_t bad = row_bytes(array, row); bad != cudaSuccess) return bad;
  if (at.x >= row && count != 0) return cudaErrorInvalidValue;
  for (size_t done = 0; done < count;) {
    const size_t left = count - done;
    const bool whole_rows = at.x == 0 && left >= row;
    const size_t width = whole_rows ? row : std::min(left, row - at.x);
    const size_t rows = whole_rows ? left / row : 1;
    if (const cudaError_t bad = copy(done, at, width, rows); bad != cudaSuccess) return bad;
    done += width * rows;
    at = {0, at.y + rows};
  }
  return cudaSuccess;
}

cudaError_t to_array(cudaArray_t dst, Position at, const void* src, size_t count, cudaMemcpyKind kind,
                     CUstream stream, bool wait) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  return in_rectangles(dst, at, count, [&](size_t offset, Position where, size_t width, size_t rows) {
    CUDA_MEMCPY2D shape{};
    set_source(shape, static_cast<const char*>(src) + offset, width, kind);
    set_destination_array(shape, dst, where);
    return run(shape, width, rows, stream, wait);
  });
}

cudaError_t from_array(void* dst, cudaArray_const_t src, Position at, size_t count, cudaMemcpyKind kind,
                       CUstream stream, bool wait) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  return in_rectangles(src, at, count, [&](size_t offset, Position where, size_t width, size_t rows) {
    CUDA_MEMCPY2D shape{};
    set_source_array(shape, src, where);
    set_destination(shape, static_cast<char*>(dst) + offset, width, kind);
    return run(shape, width, rows, stream, wait);
  });
}

}  // namespace

cudaError_t cudaMemcpy2DToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src,
                                size_t spitch, size_t width, size_t height, cudaMemcpyKind kind,
                                CUstream default_stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > spitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D shape{};
  set_source(shape, src, spitch, kind);
  set_destination_array(shape, dst, {wOffset, hOffset});
  return run(shape, width, height, default_stream, true);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src,
                                     size_t spitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > spitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D shape{};
  set_source(shape, src, spitch, kind);
  set_destination_array(shape, dst, {wOffset, hOffset});
  return run(shape, width, height, stream, false);
}

cudaError_t cudaMemcpy2DFromArray(void* dst, size_t dpitch, cudaArray_const_t src, size_t wOffset,
                                  size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind,
                                  CUstream default_stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > dpitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D shape{};
  set_source_array(shape, src, {wOffset, hOffset});
  set_destination(shape, dst, dpitch, kind);
  return run(shape, width, height, default_stream, true);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* dst, size_t dpitch, cudaArray_const_t src, size_t wOffset,
                                       size_t hOffset, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > dpitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D shape{};
  set_source_array(shape, src, {wOffset, hOffset});
  set_destination(shape, dst, dpitch, kind);
  return run(shape, width, height, stream, false);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst,
                                     cudaArray_const_t src, size_t wOffsetSrc, size_t hOffsetSrc,
                                     size_t width, size_t height, cudaMemcpyKind kind,
                                     CUstream default_stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDA_MEMCPY2D shape{};
  set_source_array(shape, src, {wOffsetSrc, hOffsetSrc});
  set_destination_array(shape, dst, {wOffsetDst, hOffsetDst});
  return run(shape, width, height, default_stream, true);
}

cudaError_t cudaMemcpyToArray(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src, size_t count,
                              cudaMemcpyKind kind, CUstream default_stream) {
  return to_array(dst, {wOffset, hOffset}, src, count, kind, default_stream, true);
}

cudaError_t cudaMemcpyToArrayAsync(cudaArray_t dst, size_t wOffset, size_t hOffset, const void* src,
                                   size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return to_array(dst, {wOffset, hOffset}, src, count, kind, stream, false);
}

cudaError_t cudaMemcpyFromArray(void* dst, cudaArray_const_t src, size_t wOffset, size_t hOffset,
                                size_t count, cudaMemcpyKind kind, CUstream default_stream) {
  return from_array(dst, src, {wOffset, hOffset}, count, kind, default_stream, true);
}

cudaError_t cudaMemcpyFromArrayAsync(void* dst, cudaArray_const_t src, size_t wOffset, size_t hOffset,
                                     size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return from_array(dst, src, {wOffset, hOffset}, count, kind, stream, false);
}

cudaError_t cudaMemcpyArrayToArray(cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst,
                                   cudaArray_const_t src, size_t wOffsetSrc, size_t hOffsetSrc, size_t count,
                                   cudaMemcpyKind kind, CUstream default_stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  size_t source_row = 0, destination_row = 0;
  if (const cudaError_t bad = row_bytes(src, source_row); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = row_bytes(dst, destination_row); bad != cudaSuccess) return bad;
  Position from{wOffsetSrc, hOffsetSrc}, to{wOffsetDst, hOffsetDst};
  while (count > 0) {
    if (from.x >= source_row || to.x >= destination_row) return cudaErrorInvalidValue;
    const size_t width = std::min({count, source_row - from.x, destination_row - to.x});
    CUDA_MEMCPY2D shape{};
    set_source_array(shape, src, from);
    set_destination_array(shape, dst, to);
    if (const cudaError_t bad = run(shape, width, 1, default_stream, true); bad != cudaSuccess) return bad;
    count -= width;
    from = from.x + width == source_row ? Position{0, from.y + 1} : Position{from.x + width, from.y};
    to = to.x + width == destination_row ? Position{0, to.y + 1} : Position{to.x + width, to.y};
  }
  return cudaSuccess;
}

}  // namespace gpupool::cudart
