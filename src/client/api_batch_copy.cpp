// Batches of copies. CUDA promises no order within a batch, so one copy after the other is a valid one; a
// source in pageable memory has been read when the call returns, which serves every order of access.
#include <cuda.h>

#include "client/call.h"
#include "client/export.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuMemcpyBatchAsync

namespace {

CUresult check(const CUmemcpyAttributes& attributes) {
  const bool good = attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                    attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
                    attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  return good && (attributes.flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_all(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                  CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                  CUstream stream, std::size_t& failed) {
  failed = SIZE_MAX;
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || attributes == nullptr ||
      starts == nullptr || attribute_count == 0 || attribute_count > count || starts[0] != 0 ||
      stream == nullptr || stream == CU_STREAM_LEGACY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  for (std::size_t n = 0; n < attribute_count; ++n) {
    if (n > 0 && (starts[n] <= starts[n - 1] || starts[n] >= count)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = check(attributes[n]); bad != CUDA_SUCCESS) {
      failed = starts[n];
      return bad;
    }
  }
  for (std::size_t n = 0; n < count; ++n) {
    if (to[n] == 0 || from[n] == 0 || sizes[n] == 0) {
      failed = n;
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (std::size_t n = 0; n < count; ++n) {
    if (const CUresult bad = cuMemcpyAsync(to[n], from[n], sizes[n], stream); bad != CUDA_SUCCESS) {
      failed = n;
      return bad;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*, size_t,
                            size_t*, CUstream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                               size_t, CUstream);

GPUPOOL_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                           CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                           size_t* failIdx, CUstream hStream) {
  std::size_t failed = 0;
  const CUresult result = copy_all(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, failed);
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
  return result;
}

GPUPOOL_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                              size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                              size_t numAttrs, CUstream hStream) {
  std::size_t failed = 0;
  return copy_all(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, failed);
}

GPUPOOL_EXPORT CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                                    CUmemcpyAttributes* attr, CUstream hStream) {
  if (attr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check(*attr); bad != CUDA_SUCCESS) return bad;
  return cuMemcpyAsync(dst, src, size, hStream);
}

}  // extern "C"
