// Pinned and registered host memory.
#include <cuda.h>

#include "client/call/call.h"
#include "client/lease/refused_memory.h"
#include "client/memory/host_memory.h"
#include "client/memory/host_mirrors.h"
#include "generated/client_api.h"

using namespace gpupool::client;

namespace {

/// Memory that kernels may use and that does not have to be: where the share has no room for it, it still
/// serves copies.
CUresult allocate_usable(std::size_t size, unsigned flags, void*& out) {
  const RefusalIsNoMatter here;
  const CUresult result = host_memory().allocate_mapped(size, flags, out);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? host_memory().allocate(size, flags, out) : result;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pp == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if ((Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  // What is meant for the device lives at addresses that it can use too.
  if ((Flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0) return host_memory().allocate_mapped(bytesize, Flags, *pp);
  // TensorFlow asks for memory of every context, and has kernels write their counts there.
  if ((Flags & CU_MEMHOSTALLOC_PORTABLE) != 0) return allocate_usable(bytesize, Flags, *pp);
  return host_memory().allocate(bytesize, Flags, *pp);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pp == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  // A call without flags cannot say that kernels will use the memory, and they may.
  return allocate_usable(bytesize, 0, *pp);
}

CUresult cuMemFreeHost(void* p) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  host_mirrors().unmap(reinterpret_cast<std::uintptr_t>(p));
  return host_memory().free(p);
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (p == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return host_memory().add(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  host_mirrors().unmap(reinterpret_cast<std::uintptr_t>(p));
  return host_memory().remove(p);
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto region = host_memory().find(p);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = region->flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto region = host_memory().find(p);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  if (region->coherent) {
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  }
  // Pages that the program got elsewhere cannot be closed to it, so the device gets a mirror of them.
  CUdeviceptr mirror = 0;
  if (const CUresult bad = host_mirrors().map(*region, mirror); bad != CUDA_SUCCESS) return bad;
  *pdptr = mirror + (reinterpret_cast<std::uintptr_t>(p) - region->address);
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
