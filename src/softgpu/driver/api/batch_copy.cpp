// Batches of copies: one copy after the other, which is an order that CUDA allows.
// Comes first: a source that reads cuda.h before it exports nothing.
#include "softgpu/driver/base/cuda_api.h"

#include <vector>

#include "shared_api/batch_copy.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;
namespace copies = gpupool::copies;

namespace {

CUresult check_stream(CUstream stream, bool default_too) {
  if (!default_too && is_legacy_stream(stream)) return CUDA_ERROR_INVALID_VALUE;
  unsigned flags = 0;
  return cuStreamGetFlags(stream, &flags);
}

CUresult copy_all(const copies::Batch& batch, CUstream stream, std::size_t& failed) {
  failed = SIZE_MAX;
  if (const CUresult bad = check_stream(stream, false); bad != CUDA_SUCCESS) return bad;
  return copies::copy_batch(batch, failed, [&](CUdeviceptr to, CUdeviceptr from, std::size_t size) {
    return cuMemcpyAsync(to, from, size, stream);
  });
}

CUresult element_bytes(CUarray array, std::size_t& bytes) {
  CUDA_ARRAY3D_DESCRIPTOR described{};
  if (const CUresult bad = cuArray3DGetDescriptor_v2(&described, array); bad != CUDA_SUCCESS) return bad;
  bytes = copies::element_bytes(described.Format, described.NumChannels);
  return CUDA_SUCCESS;
}

CUresult copy_all_3d(const CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t count, unsigned long long flags,
                     CUstream stream, std::size_t& failed) {
  failed = SIZE_MAX;
  if (operations == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return entry_any_time([&] {
    std::vector<CUDA_MEMCPY3D> shapes(count);
    for (failed = 0; failed < count; ++failed) {
      const CUresult bad = copies::shape_of(operations[failed], element_bytes, shapes[failed]);
      if (bad != CUDA_SUCCESS) return bad;
    }
    for (failed = 0; failed < count; ++failed) {
      if (const CUresult bad = cuMemcpy3DAsync_v2(&shapes[failed], stream); bad != CUDA_SUCCESS) return bad;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream) {
  std::size_t failed = 0;
  const CUresult result = copy_all({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, hStream, failed);
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
  return result;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  std::size_t failed = 0;
  return copy_all({dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}, hStream, failed);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr,
                                     CUstream hStream) {
  if (attr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = copies::check_attributes(attr->srcAccessOrder, attr->flags);
  return bad == CUDA_SUCCESS ? cuMemcpyAsync(dst, src, size, hStream) : bad;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  std::size_t failed = SIZE_MAX;
  CUresult result = check_stream(hStream, false);
  if (result == CUDA_SUCCESS) result = copy_all_3d(opList, numOps, flags, hStream, failed);
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
  return result;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
                                 CUstream hStream) {
  std::size_t failed = SIZE_MAX;
  const CUresult bad = check_stream(hStream, false);
  return bad == CUDA_SUCCESS ? copy_all_3d(opList, numOps, flags, hStream, failed) : bad;
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                       CUstream hStream) {
  std::size_t failed = SIZE_MAX;
  const CUresult bad = check_stream(hStream, true);
  return bad == CUDA_SUCCESS ? copy_all_3d(op, 1, flags, hStream, failed) : bad;
}
