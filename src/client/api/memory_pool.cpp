// Stream-ordered memory and its pools.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/capture.h"
#include "client/call/objects.h"
#include "client/call/refuse.h"
#include "client/lease/refused_memory.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/device_memory.h"
#include "client/memory/exported_objects.h"
#include "client/memory/memory_pools.h"
#include "client/memory/opened_memory.h"
#include "client/memory/stream_order.h"
#include "client/objects/graph_memory.h"
#include "client/process/session_belongings.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

constexpr std::uint32_t devices_most = 64;
using Kind = MemoryPool::Kind;

/// The pool in force for a place, by the index of its default pool; 0: the default one.
std::array<std::uint64_t, 3 * devices_most>& current() {
  static auto& all = kept_for_session<std::array<std::uint64_t, 3 * devices_most>>([](auto& kept) {
    const MutexLock lock(pool_mutex());
    kept.fill(0);
  });
  return all;
}

/// Kind of pool, the device whose arena it uses, and the index of the place's default pool.
struct Location {
  Kind kind = Kind::device;
  int device = 0;
  std::uint32_t index = 0;
};

CUresult locate(const CUmemLocation& location, CUmemAllocationType type, Location& out) {
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)
    return CUDA_ERROR_INVALID_VALUE;
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (location.id < 0 || location.id >= count || location.id >= static_cast<int>(devices_most))
        return CUDA_ERROR_INVALID_DEVICE;
      out.device = location.id;
      break;
    case CU_MEM_LOCATION_TYPE_NONE:
      if (type != CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
      [[fallthrough]];
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      out.device = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  out.kind = type == CU_MEM_ALLOCATION_TYPE_MANAGED         ? Kind::managed
             : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Kind::device
                                                            : Kind::host;
  out.index = static_cast<std::uint32_t>(out.kind) * devices_most + static_cast<std::uint32_t>(out.device);
  return CUDA_SUCCESS;
}

// Precondition of the next two: pool_mutex() held.
std::uint64_t default_pool(const Location& location, const CUmemLocation& place) {
  const std::uint64_t handle = wire::Handle{wire::Kind::memory_pool, 0, location.index}.value();
  if (tables().pools.find(handle) == nullptr) {
    MemoryPool* pool = nullptr;
    tables().pools.mint_at(location.index, pool);
    pool->kind = location.kind;
    pool->location = place;
    pool->device = location.device;
    pool->is_default = true;
  }
  return handle;
}

std::uint64_t current_pool(const Location& location, const CUmemLocation& place) {
  const std::uint64_t chosen = current()[location.index];
  return chosen != 0 && tables().pools.find(chosen) != nullptr ? chosen : default_pool(location, place);
}

CUresult get_pool(CUmemoryPool* pool, const CUmemLocation* place, CUmemAllocationType type,
                  bool the_default) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == nullptr || place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Location location;
  if (const CUresult bad = locate(*place, type, location); bad != CUDA_SUCCESS) return bad;
  const MutexLock lock(pool_mutex());
  *pool =
      handle_as<CUmemoryPool>(the_default ? default_pool(location, *place) : current_pool(location, *place));
  return CUDA_SUCCESS;
}

CUresult set_pool(const CUmemLocation* place, CUmemAllocationType type, CUmemoryPool pool) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Location location;
  if (const CUresult bad = locate(*place, type, location); bad != CUDA_SUCCESS) return bad;
  if (object->kind != location.kind || object->device != location.device) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool_mutex());
  current()[location.index] = raw(pool);
  return CUDA_SUCCESS;
}

CUmemLocation on_device(CUdevice device) {
  CUmemLocation place{};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = device;
  return place;
}

/// What a pool counts as used, taken back unless the allocation came to be.
class Counted {
 public:
  Counted(MemoryPool& pool, std::size_t size) : pool_(pool), size_(size) {}
  ~Counted() {
    if (kept_) return;
    const MutexLock lock(pool_mutex());
    pool_.used -= size_;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  void keep() { kept_ = true; }

 private:
  MemoryPool& pool_;
  const std::size_t size_;
  bool kept_ = false;
};

CUresult allocate(CUdeviceptr* dptr, std::size_t size, std::uint64_t handle, CUstream stream) {
  MemoryPool* const pool = tables().pools.find(handle);
  if (pool == nullptr || !known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (dptr == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (size == 0) {  // in a stream nothing is something that one may have
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  bool capturing = false;
  if (const CUresult bad = is_capturing(stream, capturing); bad != CUDA_SUCCESS) return bad;
  if (capturing) {
    CUdevice device = 0;
    if (const CUresult bad = cuCtxGetDevice(&device); bad != CUDA_SUCCESS) return bad;
    if (pool->kind != Kind::device || pool->device != device) {
      return static_cast<CUresult>(
          refuse("cuMemAllocFromPoolAsync", "a graph allocates memory of the stream's own device only"));
    }
    return allocate_in_capture(dptr, size, stream);
  }
  {
    const MutexLock lock(pool_mutex());
    if (pool->max_size != 0 && (size > pool->max_size || pool->used > pool->max_size - size)) {
      remember_refusal("out of memory: " + amount(size) +
                       " asked of a memory pool whose own limit (maxSize) is " + amount(pool->max_size) +
                       ", " + amount(pool->used) + " used");
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->used += size;
    pool->used_high = std::max(pool->used_high, pool->used);
  }
  Counted counted(*pool, size);
  CUresult result = runtime().enter();
  if (result == CUDA_SUCCESS) {
    DeviceMemory& memory = device_memory();
    result = pool->kind == Kind::device
                 ? memory.allocate(pool->device, size, stream_in_order(stream), handle, *dptr)
                 : memory.allocate_coherent(pool->device, size,
                                            pool->kind == Kind::managed ? CoherentMemory::Kind::managed
                                                                        : CoherentMemory::Kind::host,
                                            CU_MEM_ATTACH_GLOBAL, handle, *dptr);
  }
  if (result == CUDA_SUCCESS) counted.keep();
  return result;
}

/// Width of a pool attribute's value in bytes; 0 for an unknown one.
std::size_t attribute_size(CUmemPool_attribute attribute) {
  switch (static_cast<int>(attribute)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
    case CU_MEMPOOL_ATTR_LOCATION_ID:
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
      return sizeof(int);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      return sizeof(cuuint64_t);
    default:
      return 0;
  }
}

/// CUDA takes memory for a pool in steps. `most`: the pool's size; 0: as much as there is.
std::uint64_t in_steps(std::uint64_t used, std::uint64_t most) {
  constexpr std::uint64_t step = 32 << 20;
  const std::uint64_t reserved = (used + step - 1) / step * step;
  return most == 0 ? reserved : std::min(reserved, std::max(most, used));
}

// Precondition: pool_mutex() held. A pool caches nothing that others could not have, so what it has reserved
// is what is used, rounded up as programs expect it.
std::uint64_t attribute_value(const MemoryPool& pool, CUmemPool_attribute attribute) {
  switch (static_cast<int>(attribute)) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return pool.used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return in_steps(pool.used, pool.max_size);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return pool.used_high;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return in_steps(pool.used_high, pool.max_size);
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
      return pool.kind == Kind::managed ? CU_MEM_ALLOCATION_TYPE_MANAGED : CU_MEM_ALLOCATION_TYPE_PINNED;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
      return static_cast<std::uint64_t>(pool.location.id);
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
      return static_cast<std::uint64_t>(pool.location.type);
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      return pool.max_size;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
      return pool.shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
      return 0;
    default:
      break;
  }
  if (const auto stored = pool.attributes.find(attribute); stored != pool.attributes.end())
    return stored->second;
  return attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? 1 : 0;  // CUDA's defaults
}

}  // namespace

namespace gpupool::client {

CUresult free_block(CUdeviceptr address, std::uint64_t stream) try {
  if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
  if (const auto opened = opened_memory().find(address); opened && opened->address == address)
    return opened_memory().close(address, true);
  const auto found = device_memory().find(address);
  if (!found || found->block.address != address) return CUDA_ERROR_INVALID_VALUE;
  // Memory of a pool outlives the pool.
  const bool of_pool = wire::Handle::from(found->block.owner).kind == wire::Kind::memory_pool;
  if (const auto coherent = coherent_memory().find(address);
      !of_pool && coherent && coherent->kind == CoherentMemory::Kind::host) {
    return CUDA_ERROR_INVALID_VALUE;  // that is for cuMemFreeHost
  }
  const CUresult result = device_memory().free(address, stream);
  if (result == CUDA_SUCCESS && of_pool) uncount_in_pool(found->block.owner, found->block.requested);
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace gpupool::client

namespace gpupool::client::api {

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  runtime().begin_if_over();
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CUmemoryPool pool = nullptr;
  if (const CUresult bad = api::cuDeviceGetMemPool(&pool, object->device); bad != CUDA_SUCCESS) return bad;
  return allocate(dptr, bytesize, raw(pool), hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return allocate(dptr, bytesize, raw(pool), hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!known(wire::Kind::stream, hStream)) return CUDA_ERROR_INVALID_HANDLE;
  if (dptr == 0) return CUDA_SUCCESS;
  if (is_graph_memory(dptr)) return free_graph_memory(dptr, hStream);
  bool capturing = false;
  if (const CUresult bad = is_capturing(hStream, capturing); bad != CUDA_SUCCESS) return bad;
  // A node that frees is for what a node has allocated: other memory would be gone at the second launch.
  return capturing ? CUDA_ERROR_INVALID_VALUE : free_block(dptr, stream_in_order(hStream));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice dev) {
  runtime().begin_if_over();
  const CUmemLocation place = on_device(dev);
  return get_pool(pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED, true);
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  const CUmemLocation place = on_device(dev);
  return get_pool(pool, &place, CU_MEM_ALLOCATION_TYPE_PINNED, false);
}
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const CUmemLocation place = on_device(dev);
  const CUresult result = set_pool(&place, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_DEVICE : result;
}
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  return get_pool(pool_out, location, type, true);
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return get_pool(pool, location, type, false);
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return set_pool(location, type, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool shareable = poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  Location location;
  if (const CUresult bad = locate(poolProps->location, poolProps->allocType, location); bad != CUDA_SUCCESS)
    return bad;
  if (shareable &&
      (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || location.kind != Kind::device)) {
    return static_cast<CUresult>(refuse(
        "cuMemPoolCreate", "only memory of a device is shared with another process, by a file descriptor"));
  }
  MemoryPool* made = nullptr;
  const std::uint64_t handle = tables().pools.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->kind = location.kind;
  made->location = poolProps->location;
  made->device = location.device;
  made->max_size = poolProps->maxSize;
  made->shareable = shareable;
  *pool = handle_as<CUmemoryPool>(handle);
  return CUDA_SUCCESS;
}

// Memory of the pool stays until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (object->is_default) return CUDA_ERROR_INVALID_VALUE;
  end_export(ExportKind::pool, object->device, raw(pool));
  const MutexLock lock(pool_mutex());
  for (auto& chosen : current()) {
    if (chosen == raw(pool)) chosen = 0;
  }
  tables().pools.drop(raw(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t size = attribute_size(attr);
  if (value == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool_mutex());
  const std::uint64_t found = attribute_value(*object, attr);
  std::memcpy(value, &found, size);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t stored = 0;
  std::memcpy(&stored, value, attribute_size(attr));
  const MutexLock lock(pool_mutex());
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      object->attributes[attr] = stored;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (stored != 0) return CUDA_ERROR_INVALID_VALUE;  // the mark can only be reset
      object->used_high = object->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return runtime().connected() ? device_memory().trim(object->device) : CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
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

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const MemoryPool* const object = tables().pools.find(raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == object->device;
  *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
