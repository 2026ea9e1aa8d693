// Copies from and to one-dimensional arrays, and three-dimensional copies between contexts.
#include <cuda.h>

#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/array_copy.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

CUresult from_host(CUarray to, std::size_t offset, const void* from, std::size_t size, CUstream stream) {
  CUDA_MEMCPY3D s = row_of_arrays(to, nullptr, offset, 0, size);
  s.srcMemoryType = CU_MEMORYTYPE_HOST;
  s.srcHost = from;
  return copy_with_arrays(s, stream);
}

CUresult to_host(void* to, CUarray from, std::size_t offset, std::size_t size, CUstream stream) {
  CUDA_MEMCPY3D s = row_of_arrays(nullptr, from, 0, offset, size);
  s.dstMemoryType = CU_MEMORYTYPE_HOST;
  s.dstHost = to;
  return copy_with_arrays(s, stream);
}

CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& from) {
  static_assert(sizeof(CUDA_MEMCPY3D) ==
                sizeof(CUDA_MEMCPY3D_PEER));  // contexts lie where reserved fields do
  CUDA_MEMCPY3D s{};
  std::memcpy(&s, &from, sizeof(s));
  s.reserved0 = s.reserved1 = nullptr;
  return s;
}

/// Addresses and arrays say themselves where they are; only arrays of two contexts need both to be named.
CUresult copy_between_contexts(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream, bool asynchronous) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const CUcontext context : {pCopy->srcContext, pCopy->dstContext}) {
    if (!known(wire::Kind::context, context)) return CUDA_ERROR_INVALID_CONTEXT;
  }
  const bool on_device =
      pCopy->srcMemoryType != CU_MEMORYTYPE_HOST && pCopy->dstMemoryType != CU_MEMORYTYPE_HOST &&
      pCopy->srcMemoryType != CU_MEMORYTYPE_UNIFIED && pCopy->dstMemoryType != CU_MEMORYTYPE_UNIFIED;
  if (!has_array_side(pCopy->srcMemoryType, pCopy->dstMemoryType) || !on_device ||
      pCopy->srcContext == pCopy->dstContext) {
    const CUDA_MEMCPY3D s = without_contexts(*pCopy);
    return asynchronous ? api::cuMemcpy3DAsync(&s, hStream) : api::cuMemcpy3D(&s);
  }
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  CUDA_MEMCPY3D_PEER s = *pCopy;
  s.srcHost = s.dstHost = nullptr;
  if (runtime().several()) {
    const WorkerLink& worker = worker_of_stream(hStream);
    for (CUcontext* const context : {&s.srcContext, &s.dstContext}) {
      std::uint64_t handle = raw(*context);
      if (&worker_of_context(handle) != &worker) {
        return refuse_mixed("cuMemcpy3DPeer", "arrays of different nodes");
      }
      ForWorker(worker).context(handle);
      *context = handle_as<CUcontext>(handle);
    }
  }
  messages::cuMemcpy3DPeerAsync m;
  std::memcpy(m.pCopy.data(), &s, sizeof(s));
  m.hStream = raw(hStream);
  return post(m);
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_with_arrays(row_of_arrays(dstArray, srcArray, dstOffset, srcOffset, ByteCount), nullptr);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  CUDA_MEMCPY3D s = row_of_arrays(nullptr, srcArray, 0, srcOffset, ByteCount);
  s.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  s.dstDevice = dstDevice;
  return copy_with_arrays(s, nullptr);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
  CUDA_MEMCPY3D s = row_of_arrays(dstArray, nullptr, dstOffset, 0, ByteCount);
  s.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  s.srcDevice = srcDevice;
  return copy_with_arrays(s, nullptr);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount) {
  return from_host(dstArray, dstOffset, srcHost, ByteCount, nullptr);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return from_host(dstArray, dstOffset, srcHost, ByteCount, hStream);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return to_host(dstHost, srcArray, srcOffset, ByteCount, nullptr);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return to_host(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return copy_between_contexts(pCopy, hStream, true);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return copy_between_contexts(pCopy, nullptr, false);
}

}  // namespace gpupool::client::api
