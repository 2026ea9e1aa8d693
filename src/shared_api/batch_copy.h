// Batches of copies: what CUDA asks of their descriptions, and what one of their operations is as an ordinary
// copy. The client and the software GPU compose batches of single copies, because CUDA promises no order
// within one.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shared_api/array_elements.h"

namespace gpupool::copies {

inline CUresult check_attributes(CUmemcpySrcAccessOrder order, unsigned flags) {
  const bool known = order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                     order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
                     order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  return known && (flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

/// A batch of one-dimensional copies, as cuMemcpyBatchAsync gets it.
struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const std::size_t* sizes;
  std::size_t count;
  const CUmemcpyAttributes* attributes;
  const std::size_t* starts;  ///< the first copy that each of the attributes is for
  std::size_t attribute_count;
};

/// Does all copies with `copy(to, from, size)`, once the whole batch is found to be good. `failed` is the
/// index of the copy that is at fault, SIZE_MAX where none is.
template <class F>
CUresult copy_batch(const Batch& b, std::size_t& failed, F copy) {
  failed = SIZE_MAX;
  if (b.to == nullptr || b.from == nullptr || b.sizes == nullptr || b.count == 0 || b.attributes == nullptr ||
      b.starts == nullptr || b.attribute_count == 0 || b.attribute_count > b.count || b.starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t n = 0; n < b.attribute_count; ++n) {
    if (n > 0 && (b.starts[n] <= b.starts[n - 1] || b.starts[n] >= b.count)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult bad = check_attributes(b.attributes[n].srcAccessOrder, b.attributes[n].flags);
    if (bad != CUDA_SUCCESS) {
      failed = b.starts[n];
      return bad;
    }
  }
  for (std::size_t n = 0; n < b.count; ++n) {
    if (b.to[n] == 0 || b.from[n] == 0 || b.sizes[n] == 0) {
      failed = n;
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (std::size_t n = 0; n < b.count; ++n) {
    if (const CUresult bad = copy(b.to[n], b.from[n], b.sizes[n]); bad != CUDA_SUCCESS) {
      failed = n;
      return bad;
    }
  }
  return CUDA_SUCCESS;
}

/// One side of a three-dimensional copy, in bytes.
struct Side {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  std::size_t x = 0, y = 0, z = 0, pitch = 0, rows = 0;
};

inline CUresult side_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent, std::size_t element,
                        Side& out) {
  constexpr std::size_t most = std::size_t{1} << 40;
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& given = operand.op.array;
    if (given.offset.x > most) return CUDA_ERROR_INVALID_VALUE;
    out.type = CU_MEMORYTYPE_ARRAY;
    out.array = given.array;
    out.x = given.offset.x * element;
    out.y = given.offset.y;
    out.z = given.offset.z;
    return CUDA_SUCCESS;
  }
  const auto& given = operand.op.ptr;
  const std::size_t row = given.rowLength == 0 ? extent.width : given.rowLength;
  out.rows = given.layerHeight == 0 ? extent.height : given.layerHeight;
  if (given.ptr == 0 || row < extent.width || out.rows < extent.height || row > most || out.rows > most)
    return CUDA_ERROR_INVALID_VALUE;
  out.address = given.ptr;
  out.pitch = row * element;
  return CUDA_SUCCESS;
}

/// What an operation is as an ordinary three-dimensional copy. `bytes_of(array, bytes)` says how large an
/// array's elements are; extents count them, and bytes where no array takes part.
template <class F>
CUresult shape_of(const CUDA_MEMCPY3D_BATCH_OP& op, F bytes_of, CUDA_MEMCPY3D& out) {
  if (const CUresult bad = check_attributes(op.srcAccessOrder, op.flags); bad != CUDA_SUCCESS) return bad;
  constexpr std::size_t most = std::size_t{1} << 40;
  if (op.extent.width == 0 || op.extent.height == 0 || op.extent.depth == 0 || op.extent.width > most)
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t element = 0;
  for (const CUmemcpy3DOperand* const operand : {&op.src, &op.dst}) {
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) continue;
    std::size_t bytes = 0;
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = bytes_of(operand->op.array.array, bytes); bad != CUDA_SUCCESS) return bad;
    if (bytes == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (element != 0 && element != bytes) return CUDA_ERROR_INVALID_VALUE;
    element = bytes;
  }
  if (element == 0) element = 1;
  Side from, to;
  if (const CUresult bad = side_of(op.src, op.extent, element, from); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = side_of(op.dst, op.extent, element, to); bad != CUDA_SUCCESS) return bad;
  out = {};
  out.srcMemoryType = from.type;
  out.srcDevice = from.address;
  out.srcArray = from.array;
  out.srcXInBytes = from.x;
  out.srcY = from.y;
  out.srcZ = from.z;
  out.srcPitch = from.pitch;
  out.srcHeight = from.rows;
  out.dstMemoryType = to.type;
  out.dstDevice = to.address;
  out.dstArray = to.array;
  out.dstXInBytes = to.x;
  out.dstY = to.y;
  out.dstZ = to.z;
  out.dstPitch = to.pitch;
  out.dstHeight = to.rows;
  out.WidthInBytes = op.extent.width * element;
  out.Height = op.extent.height;
  out.Depth = op.extent.depth;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::copies
