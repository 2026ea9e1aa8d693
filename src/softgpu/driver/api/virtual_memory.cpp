// Virtual memory management.
#include "softgpu/driver/memory/virtual_memory.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/backing/allocation_table.h"

using namespace softgpu::driver;

namespace {

// Throws Error(INVALID_VALUE); Error(NOT_SUPPORTED) for what this driver cannot give.
Device& device_for(const CUmemAllocationProp* properties) {
  require(properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
  require(properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
              properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          CUDA_ERROR_NOT_SUPPORTED);
  require(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  return Driver::get().device(properties->location.id);
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return entry([&] {
    require(granularity != nullptr &&
            (option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    device_for(prop);
    *granularity = chunk_bytes;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return entry([&] {
    require(ptr != nullptr && flags == 0);
    *ptr = VirtualMemory::of_process().reserve(size, alignment, addr);
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return entry([&] { VirtualMemory::of_process().release_reservation(ptr, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  return entry([&] {
    require(handle != nullptr && flags == 0);
    Device& device = device_for(prop);
    *handle = VirtualMemory::of_process().create(device, size, *prop);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return entry([&] { VirtualMemory::of_process().release(handle); });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return entry([&] {
    require(flags == 0);
    VirtualMemory::of_process().map(ptr, size, offset, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return entry([&] { VirtualMemory::of_process().unmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return entry([&] {
    require(desc != nullptr && count > 0);
    // Devices share the address space; the widest access asked for by any of them holds.
    CUmemAccess_flags widest = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (std::size_t i = 0; i < count; ++i) {
      if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) Driver::get().device(desc[i].location.id);
      if (desc[i].flags > widest) widest = desc[i].flags;
    }
    VirtualMemory::of_process().set_access(ptr, size, widest);
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return entry([&] {
    require(flags && location);
    const auto allocation = AllocationTable::of_process().find(ptr);
    require(allocation && allocation->kind == MemoryKind::mapped);
    *flags = !allocation->accessible ? CU_MEM_ACCESS_FLAGS_PROT_NONE
             : allocation->writable  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                     : CU_MEM_ACCESS_FLAGS_PROT_READ;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return entry([&] {
    require(prop != nullptr);
    *prop = VirtualMemory::of_process().properties(handle);
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return entry([&] {
    require(handle != nullptr);
    *handle = VirtualMemory::of_process().retain(reinterpret_cast<std::uint64_t>(addr));
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  return entry([&] {
    require(shareableHandle != nullptr && flags == 0);
    require(handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    *static_cast<int*>(shareableHandle) = VirtualMemory::of_process().export_descriptor(handle);
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return entry([&] {
    require(handle != nullptr);
    require(shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(osHandle));
    *handle = VirtualMemory::of_process().import_descriptor(descriptor);
  });
}
