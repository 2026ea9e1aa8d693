// Device memory: allocation, stream-ordered allocation, pools.
#include <cuda.h>

#include <cstring>

#include "client/call.h"
#include "client/export.h"
#include "client/refuse.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuMemPrefetchAsync
#undef cuMemAdvise

namespace {

CUresult current_device(int& device) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  device = object->device;
  return CUDA_SUCCESS;
}

/// Without a stream the memory belongs to the current context, else to a pool of the device.
CUresult allocate(CUdeviceptr* dptr, int device, std::size_t size, std::uint64_t stream) try {
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  return runtime().memory.allocate(device, size, stream, stream == 0 ? current_context() : 0, *dptr);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult release(CUdeviceptr dptr, std::uint64_t stream) try {
  if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
  return runtime().memory.free(dptr, stream);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/// Identity of a stream for ordering: never 0.
std::uint64_t stream_key(CUstream stream) {
  return raw(stream) == 0 ? 1 : raw(stream);
}

std::uint64_t default_pool(int device) {
  const std::uint64_t handle =
      wire::Handle{wire::Kind::memory_pool, 0, static_cast<std::uint32_t>(device)}.value();
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (tables().pools.find(handle) == nullptr) {
    MemoryPool* pool = nullptr;
    tables().pools.mint_at(static_cast<std::uint32_t>(device), pool);
    pool->device = device;
    pool->is_default = true;
  }
  return handle;
}

CUresult get_pool(CUmemoryPool* pool, CUdevice dev) {
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dev < 0 || dev >= count || dev >= 64) return CUDA_ERROR_INVALID_DEVICE;
  *pool = handle_as<CUmemoryPool>(default_pool(dev));
  return CUDA_SUCCESS;
}

std::mutex& pool_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

/// Width of a pool attribute's value in bytes; 0 for an unknown one.
std::size_t pool_attribute_size(CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return sizeof(int);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return sizeof(cuuint64_t);
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

GPUPOOL_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  std::uint64_t free_bytes = 0, total_bytes = 0;
  if (const CUresult bad = runtime().memory.info(device, free_bytes, total_bytes); bad != CUDA_SUCCESS)
    return bad;
  if (free != nullptr) *free = free_bytes;
  if (total != nullptr) *total = total_bytes;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate(dptr, device, bytesize, 0);
}

GPUPOOL_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                           size_t Height, unsigned int ElementSizeBytes) {
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t pitch =
      (WidthInBytes + ArenaAllocator::alignment - 1) / ArenaAllocator::alignment * ArenaAllocator::alignment;
  if (pitch < WidthInBytes || Height > SIZE_MAX / pitch) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult bad = allocate(dptr, device, pitch * Height, 0); bad != CUDA_SUCCESS) return bad;
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return dptr == 0 ? CUDA_SUCCESS : release(dptr, 0);
}

GPUPOOL_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime().memory.find(dptr);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = found->block.address;
  if (psize != nullptr) *psize = found->block.requested;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  int device = 0;
  if (const CUresult bad = current_device(device); bad != CUDA_SUCCESS) return bad;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known(wire::Kind::stream, hStream)) return CUDA_ERROR_INVALID_HANDLE;
  return allocate(dptr, device, bytesize, stream_key(hStream));
}

GPUPOOL_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                                CUstream hStream) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr || !known(wire::Kind::stream, hStream)) return CUDA_ERROR_INVALID_HANDLE;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate(dptr, object->device, bytesize, stream_key(hStream));
}

GPUPOOL_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!known(wire::Kind::stream, hStream)) return CUDA_ERROR_INVALID_HANDLE;
  return release(dptr, stream_key(hStream));
}

GPUPOOL_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return get_pool(pool, dev);
}
GPUPOOL_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice dev) {
  return get_pool(pool, dev);
}

GPUPOOL_EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (object->device != dev) return CUDA_ERROR_INVALID_DEVICE;
  if (object->is_default) return CUDA_SUCCESS;
  return static_cast<CUresult>(
      refuse("cuDeviceSetMemPool", "only the default pool can be a device's current pool"));
}

GPUPOOL_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return static_cast<CUresult>(
        refuse("cuMemPoolCreate", "only pools in device memory that are not shared between processes"));
  }
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  if (poolProps->location.id < 0 || poolProps->location.id >= count) return CUDA_ERROR_INVALID_DEVICE;
  MemoryPool* made = nullptr;
  const std::uint64_t handle = tables().pools.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->device = poolProps->location.id;
  *pool = handle_as<CUmemoryPool>(handle);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (object->is_default) return CUDA_ERROR_INVALID_VALUE;
  tables().pools.drop(raw(pool));
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t size = pool_attribute_size(attr);
  if (value == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t found = attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? 1 : 0;  // CUDA's defaults
  {
    const std::lock_guard lock(pool_mutex());
    if (const auto stored = object->attributes.find(attr); stored != object->attributes.end())
      found = stored->second;
  }
  if (attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
    std::uint64_t free = 0, total = 0;
    if (runtime().connected() && runtime().memory.info(object->device, free, total) == CUDA_SUCCESS)
      found = total - free;
  }
  std::memcpy(value, &found, size);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t size = pool_attribute_size(attr);
  if (value == nullptr || size == 0 || attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ||
      attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint64_t stored = 0;
  std::memcpy(&stored, value, size);
  const std::lock_guard lock(pool_mutex());
  object->attributes[attr] = stored;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return runtime().connected() ? runtime().memory.trim(object->device) : CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (map == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t n = 0; n < count; ++n) {
    if (map[n].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[n].location.id != object->device) {
      return CUDA_ERROR_INVALID_DEVICE;  // no peer access between devices
    }
  }
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool,
                                           CUmemLocation* location) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == object->device;
  *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemAllocManaged(CUdeviceptr*, size_t, unsigned int) {
  return static_cast<CUresult>(refuse("cuMemAllocManaged",
                                      "memory shared with the host needs the device in the same machine; "
                                      "use device arrays and copies"));
}

CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);

// Hints about managed memory, of which there is none.
GPUPOOL_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream) {
  return CUDA_ERROR_INVALID_VALUE;
}
GPUPOOL_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_VALUE;
}
GPUPOOL_EXPORT CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice) {
  return CUDA_ERROR_INVALID_VALUE;
}
GPUPOOL_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation) {
  return CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
