// Allocation: device, pitched, managed, host; and what is known about it.
#include <algorithm>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

namespace {

constexpr std::size_t pitch_alignment = 512;

void require_usable_pointer(const Allocation& allocation) {
  require(allocation.kind == MemoryKind::device || allocation.kind == MemoryKind::managed);
}

// Work that may still use the memory ends before it goes, as with CUDA: that of its own context, and that of
// the current one.
void wait_for_users_of(std::uint64_t address, Context& current) {
  const auto allocation = AllocationTable::of_process().find(address);
  const auto owner = allocation ? registry<Context>().find(allocation->context) : nullptr;
  if (owner) owner->wait_for_work();
  current.synchronize();
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return entry([&] {
    require(free && total);
    const Device& device = current_context()->device();
    *total = device.total_memory();
    *free = *total - std::min(*total, device.used_memory());
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return entry([&] {
    require(dptr != nullptr);
    *dptr = allocate_device(*current_context(), bytesize, MemoryKind::device);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return entry([&] {
    require(dptr && pPitch && WidthInBytes > 0 && Height > 0);
    require(ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    require(WidthInBytes <= (std::size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
    const std::size_t pitch = (WidthInBytes + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
    std::size_t size = 0;
    require(!__builtin_mul_overflow(pitch, Height, &size), CUDA_ERROR_OUT_OF_MEMORY);
    *dptr = allocate_device(*current_context(), size, MemoryKind::device);
    *pPitch = pitch;
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return entry([&] {
    require(dptr != nullptr && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    *dptr = allocate_device(*current_context(), bytesize, MemoryKind::managed);
  });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return entry([&] {
    const auto context = current_context();
    if (dptr == 0) return;
    const auto allocation = AllocationTable::of_process().find(dptr);
    require(allocation && allocation->base == dptr);
    require_usable_pointer(*allocation);
    wait_for_users_of(dptr, *context);
    free_device(dptr);
  });
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return entry([&] {
    require(pp != nullptr);
    *pp = allocate_host(*current_context(), bytesize, 0);
  });
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return entry([&] {
    constexpr unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    require(pp != nullptr && (Flags & ~known) == 0);
    *pp = allocate_host(*current_context(), bytesize, Flags);
  });
}

CUresult cuMemFreeHost(void* p) {
  return entry([&] {
    const auto context = current_context();
    if (!p) return;
    wait_for_users_of(reinterpret_cast<std::uint64_t>(p), *context);
    free_host(p);
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return entry([&] {
    constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    require((Flags & ~known) == 0);
    require(!(Flags & CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_NOT_SUPPORTED);
    register_host(*current_context(), p, bytesize, Flags);
  });
}

CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  return entry([&] {
    wait_for_users_of(reinterpret_cast<std::uint64_t>(p), *current_context());
    unregister_host(p);
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return entry([&] {
    require(pdptr && p && Flags == 0);
    const auto address = reinterpret_cast<std::uint64_t>(p);
    const auto allocation = AllocationTable::of_process().find(address);
    require(allocation && allocation->is_host());
    *pdptr = address;
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return entry([&] {
    require(pFlags && p);
    const auto allocation = AllocationTable::of_process().find(reinterpret_cast<std::uint64_t>(p));
    require(allocation && allocation->kind == MemoryKind::host);
    // Every allocation is mapped under unified addressing.
    *pFlags = allocation->host_flags | CU_MEMHOSTALLOC_DEVICEMAP;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return entry([&] {
    const auto allocation = AllocationTable::of_process().find(dptr);
    require(allocation.has_value(), CUDA_ERROR_NOT_FOUND);
    if (pbase) *pbase = allocation->base;
    if (psize) *psize = allocation->size;
  });
}

// Managed memory never moves: advice and prefetching are checked and have nothing to do.
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise, CUmemLocation) {
  return entry([&] { require(count > 0 && AllocationTable::of_process().covers(devPtr, count)); });
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice) {
  return cuMemAdvise_v2(devPtr, count, advice, CUmemLocation{});
}
