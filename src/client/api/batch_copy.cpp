// Batches of copies. CUDA promises no order within a batch, so one copy after the other is a valid one; a
// source in pageable memory has been read when the call returns, which serves every order of access.
#include <cuda.h>

#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "generated/client_api.h"
#include "shared_api/batch_copy.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync

namespace {

CUresult check_stream(CUstream stream, bool default_too) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!default_too && (stream == nullptr || stream == CU_STREAM_LEGACY)) return CUDA_ERROR_INVALID_VALUE;
  return known(wire::Kind::stream, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult copy_all(const copies::Batch& batch, CUstream stream, std::size_t& failed) {
  failed = SIZE_MAX;
  if (const CUresult bad = check_stream(stream, false); bad != CUDA_SUCCESS) return bad;
  return copies::copy_batch(batch, failed, [&](CUdeviceptr to, CUdeviceptr from, std::size_t size) {
    return cuMemcpyAsync(to, from, size, stream);
  });
}

/// Element sizes of arrays never change: each array is asked about once. By the handle's index, so that what
/// is kept of arrays that have ended is bounded.
struct ElementSizes {
  Mutex mutex;
  std::map<std::uint32_t, std::pair<std::uint64_t, std::size_t>> of GUARDED_BY(mutex);
};
ElementSizes& element_sizes() {
  static ElementSizes& all = *new ElementSizes;
  return all;
}

CUresult element_bytes(CUarray array, std::size_t& bytes) {
  if (!known(wire::Kind::array, array)) return bad_handle(wire::Kind::array);
  const std::uint32_t index = wire::Handle::from(raw(array)).index;
  {
    const MutexLock lock(element_sizes().mutex);
    const auto found = element_sizes().of.find(index);
    if (found != element_sizes().of.end() && found->second.first == raw(array)) {
      bytes = found->second.second;
      return CUDA_SUCCESS;
    }
  }
  CUDA_ARRAY3D_DESCRIPTOR described{};
  if (const CUresult bad = cuArray3DGetDescriptor(&described, array); bad != CUDA_SUCCESS) return bad;
  bytes = copies::element_bytes(described.Format, described.NumChannels);
  const MutexLock lock(element_sizes().mutex);
  element_sizes().of[index] = {raw(array), bytes};
  return CUDA_SUCCESS;
}

CUresult copy_all_3d(const CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t count, unsigned long long flags,
                     CUstream stream, std::size_t& failed) try {
  failed = SIZE_MAX;
  if (operations == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUDA_MEMCPY3D> shapes(count);
  for (std::size_t n = 0; n < count; ++n) {
    if (const CUresult bad = copies::shape_of(operations[n], element_bytes, shapes[n]); bad != CUDA_SUCCESS) {
      failed = n;
      return bad;
    }
  }
  for (std::size_t n = 0; n < count; ++n) {
    if (const CUresult bad = cuMemcpy3DAsync(&shapes[n], stream); bad != CUDA_SUCCESS) {
      failed = n;
      return bad;
    }
  }
  return CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*, size_t,
                            size_t*, CUstream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                               size_t, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_v2(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);

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
  if (const CUresult bad = copies::check_attributes(attr->srcAccessOrder, attr->flags); bad != CUDA_SUCCESS)
    return bad;
  return api::cuMemcpyAsync(dst, src, size, hStream);
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
  if (const CUresult bad = check_stream(hStream, false); bad != CUDA_SUCCESS) return bad;
  return copy_all_3d(opList, numOps, flags, hStream, failed);
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                       CUstream hStream) {
  std::size_t failed = SIZE_MAX;
  if (const CUresult bad = check_stream(hStream, true); bad != CUDA_SUCCESS) return bad;
  return copy_all_3d(op, 1, flags, hStream, failed);
}

}  // namespace gpupool::client::api
