// Memory pools and stream-ordered allocation.
#include "base/mutex.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/api/node_parameters.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/device/memory_pool.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

// Memory is taken now, not in stream order: the address must be known at once, and frees before it in stream
// order may not have run. If that is why it does not fit, waiting for them makes room.
std::uint64_t allocate_in_stream(const std::shared_ptr<Stream>& stream,
                                 const std::shared_ptr<MemoryPool>& pool, std::size_t size) {
  if (size == 0) return 0;
  if (is_capturing(*stream)) return capture_allocation(stream, pool->device(), size);
  try {
    return allocate_from(pool, stream->context(), size);
  } catch (const Error& error) {
    if (error.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
  }
  stream->run_here(nullptr);
  return allocate_from(pool, stream->context(), size);
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return entry([&] {
    require(dptr != nullptr);
    const auto stream = resolve_stream(hStream);
    Device& device = stream->context().device();
    std::shared_ptr<MemoryPool> pool;
    {
      const gpupool::MutexLock lock(device.pool_mutex);
      pool = device.current_pool;
    }
    *dptr = allocate_in_stream(stream, pool, bytesize);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return entry([&] {
    require(dptr != nullptr);
    const auto stream = resolve_stream(hStream);
    const auto chosen = registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE);
    *dptr = allocate_in_stream(stream, chosen, bytesize);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return entry([&] {
    const auto stream = resolve_stream(hStream);
    if (dptr == 0 || free_graph_allocation(stream, dptr)) return;
    const auto allocation = AllocationTable::of_process().find(dptr);
    require(allocation && allocation->base == dptr);
    refuse_in_capture(*stream);
    if (stream->ready()) {
      free_device(dptr);
      return;
    }
    stream->submit([dptr] {
      try {
        free_device(dptr);
      } catch (const Error&) {
        // Freed twice by the program: the first free stands.
      }
    });
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return entry([&] {
    require(pool && poolProps && poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    require(poolProps->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    require(poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    Device& device = Driver::get().device(poolProps->location.id);
    *pool = registry<MemoryPool>().add<CUmemoryPool>(
        std::make_shared<MemoryPool>(device, false, poolProps->maxSize));
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return entry([&] {
    const auto found = registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE);
    require(!found->is_default());
    const auto gone = registry<MemoryPool>().take(pool, CUDA_ERROR_INVALID_VALUE);
    const gpupool::MutexLock lock(gone->device().pool_mutex);
    if (gone->device().current_pool == gone)
      gone->device().current_pool = gone->device().shared_default_pool();
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return entry([&] { registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE); });  // nothing is kept back
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return entry(
      [&] { registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE)->get_attribute(attr, value); });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return entry(
      [&] { registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE)->set_attribute(attr, value); });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return entry([&] {
    registry<MemoryPool>().get(pool, CUDA_ERROR_INVALID_VALUE);
    require(map != nullptr || count == 0);
    for (std::size_t i = 0; i < count; ++i) require(map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ);
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
  return entry([&] {
    require(flags && location);
    registry<MemoryPool>().get(memPool, CUDA_ERROR_INVALID_VALUE);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;  // devices share the address space
  });
}
