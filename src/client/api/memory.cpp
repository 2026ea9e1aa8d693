// Device memory that belongs to a context.
#include <cuda.h>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/device_memory.h"
#include "client/memory/memory_pools.h"
#include "client/memory/opened_memory.h"
#include "client/memory/virtual_memory.h"
#include "client/objects/graph_memory.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

CUresult current_device(int& device) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  device = object->device;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* dptr, int device, std::size_t size) try {
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  return device_memory().allocate(device, size, 0, current_context(), *dptr);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  runtime().begin_if_over();
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  std::uint64_t free_bytes = 0, total_bytes = 0;
  if (const CUresult bad = device_memory().info(device, free_bytes, total_bytes); bad != CUDA_SUCCESS)
    return bad;
  if (free != nullptr) *free = free_bytes;
  if (total != nullptr) *total = total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  runtime().begin_if_over();
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate(dptr, device, bytesize);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  runtime().begin_if_over();
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t pitch =
      (WidthInBytes + ArenaAllocator::alignment - 1) / ArenaAllocator::alignment * ArenaAllocator::alignment;
  if (pitch < WidthInBytes || Height > SIZE_MAX / pitch) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult bad = allocate(dptr, device, pitch * Height); bad != CUDA_SUCCESS) return bad;
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (dptr == 0) return CUDA_SUCCESS;
  if (!is_graph_memory(dptr)) return free_block(dptr, 0);
  // Freed once nothing uses it any more.
  if (const CUresult bad = api::cuCtxSynchronize(); bad != CUDA_SUCCESS) return bad;
  return free_graph_memory(dptr, CU_STREAM_LEGACY);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (const auto opened = opened_memory().find(dptr)) {
    if (pbase != nullptr) *pbase = opened->address;
    if (psize != nullptr) *psize = opened->size;
    return CUDA_SUCCESS;
  }
  if (const auto own = virtual_memory().find(dptr)) {
    if (pbase != nullptr) *pbase = own->mapping;
    if (psize != nullptr) *psize = own->mapping_size;
    return CUDA_SUCCESS;
  }
  const auto found = device_memory().find(dptr);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = found->block.address;
  if (psize != nullptr) *psize = found->block.requested;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
