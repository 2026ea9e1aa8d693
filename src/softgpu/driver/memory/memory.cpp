#include "softgpu/driver/memory/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/device/memory_pool.h"
#include "softgpu/driver/graph/memory.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

Allocation describe(const Context& context, std::uint64_t base, std::size_t size, MemoryKind kind) {
  Allocation allocation;
  allocation.base = base;
  allocation.size = size;
  allocation.kind = kind;
  allocation.device = context.device().ordinal();
  allocation.context = &context;
  return allocation;
}

AllocationTable& table() {
  return AllocationTable::of_process();
}

Allocation take(std::uint64_t address, bool (*wanted)(const Allocation&), CUresult otherwise) {
  const auto found = table().find(address);
  require(found && found->base == address && wanted(*found), otherwise);
  const auto taken = table().remove(address);
  require(taken.has_value(), otherwise);  // another thread was faster
  return *taken;
}

bool is_device(const Allocation& allocation) {
  return allocation.kind == MemoryKind::device || allocation.kind == MemoryKind::managed;
}

}  // namespace

std::uint64_t allocate_device(Context& context, std::size_t size, MemoryKind kind,
                              std::shared_ptr<MemoryPool> pool, std::size_t alignment) {
  Device& device = pool ? pool->device() : context.device();
  const std::uint64_t address = device.allocate(size, std::max(alignment, allocation_alignment));
  Allocation allocation = describe(context, address, size, kind);
  allocation.device = device.ordinal();
  allocation.pool = std::move(pool);
  bool added = false;
  try {
    added = table().add(allocation);
  } catch (...) {
    device.free(address, size);
    throw;
  }
  if (added) return address;
  device.free(address, size);
  fail(CUDA_ERROR_UNKNOWN);
}

std::uint64_t allocate_from(const std::shared_ptr<MemoryPool>& pool, Context& context, std::size_t size) {
  pool->require_room(size);
  const std::uint64_t address = allocate_device(context, size, MemoryKind::device, pool);
  pool->remember(size);
  return address;
}

void free_device(std::uint64_t address) {
  if (const auto of_graph = find_graph_allocation(address)) {
    of_graph->end_use();
    return;
  }
  const Allocation allocation = take(address, is_device, CUDA_ERROR_INVALID_VALUE);
  if (allocation.pool) allocation.pool->forget(allocation);
  Driver::get().device(allocation.device).free(allocation.base, allocation.size);
}

void* allocate_host(Context& context, std::size_t size, unsigned flags) {
  require(size > 0);
  void* place =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) fail(CUDA_ERROR_OUT_OF_MEMORY);
  Allocation allocation = describe(context, reinterpret_cast<std::uint64_t>(place), size, MemoryKind::host);
  allocation.host_flags = flags;
  bool added = false;
  try {
    added = table().add(allocation);
  } catch (...) {
    munmap(place, size);
    throw;
  }
  if (added) return place;
  munmap(place, size);
  fail(CUDA_ERROR_UNKNOWN);
}

void free_host(void* address) {
  const Allocation allocation = take(
      reinterpret_cast<std::uint64_t>(address),
      [](const Allocation& a) { return a.kind == MemoryKind::host; }, CUDA_ERROR_INVALID_VALUE);
  munmap(address, allocation.size);
}

void register_host(Context& context, void* address, std::size_t size, unsigned flags) {
  require(address && size > 0 && size <= UINT64_MAX - reinterpret_cast<std::uint64_t>(address));
  Allocation allocation =
      describe(context, reinterpret_cast<std::uint64_t>(address), size, MemoryKind::registered_host);
  allocation.host_flags = flags;
  allocation.writable = !(flags & CU_MEMHOSTREGISTER_READ_ONLY);
  require(table().add(allocation), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

void unregister_host(void* address) {
  take(
      reinterpret_cast<std::uint64_t>(address),
      [](const Allocation& a) { return a.kind == MemoryKind::registered_host; },
      CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void free_memory_of(const Context& context) {
  for (const Allocation& allocation : table().owned_by(&context)) {
    if (allocation.kind == MemoryKind::mapped)
      continue;  // VMM objects belong to the device, not to a context
    table().remove(allocation.base);
    // So does the memory of pools; a primary context ends with its own device's.
    if (allocation.pool && (!context.primary() || &allocation.pool->device() != &context.device())) {
      Allocation kept = allocation;
      kept.context = nullptr;
      table().add(kept);
      continue;
    }
    if (is_device(allocation)) {
      if (allocation.pool) allocation.pool->forget(allocation);
      Driver::get().device(allocation.device).free(allocation.base, allocation.size);
    } else if (allocation.kind == MemoryKind::host) {
      munmap(reinterpret_cast<void*>(allocation.base), allocation.size);
    }
  }
}

bool is_known_memory(std::uint64_t address, std::size_t size) {
  return table().covers(address, size);
}

}  // namespace softgpu::driver
