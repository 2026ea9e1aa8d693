// What is known about a pointer.
#include <algorithm>
#include <cstring>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/backing/allocation_table.h"

using namespace softgpu::driver;

namespace {

template <class Value>
void put(void* data, Value value) {
  *static_cast<Value*>(data) = value;
}

// Fills `data` for one attribute. Throws Error(INVALID_VALUE) if the attribute does not exist or says nothing
// here.
void answer(CUpointer_attribute attribute, const Allocation& allocation, std::uint64_t pointer, void* data) {
  const bool mapped = allocation.kind == MemoryKind::mapped;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put(data, reinterpret_cast<CUcontext>(const_cast<Context*>(allocation.context)));
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put<unsigned>(data, allocation.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      put<CUdeviceptr>(data, pointer);
      return;
    // Device memory of this driver is the process's own memory: the host may use it at the same address.
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      require(allocation.accessible);
      put(data, reinterpret_cast<void*>(pointer));
      return;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put<unsigned>(data, allocation.synchronous);
      return;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put<unsigned long long>(data, allocation.buffer_id);
      return;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put<unsigned>(data, allocation.kind == MemoryKind::managed);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, allocation.device);
      return;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put<unsigned>(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put<CUdeviceptr>(data, mapped ? allocation.reservation_base : allocation.base);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put<std::size_t>(data, mapped ? allocation.reservation_size : allocation.size);
      return;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put<unsigned>(data, 1);
      return;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put<unsigned long long>(data, CU_MEM_HANDLE_TYPE_NONE);
      return;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      put<unsigned>(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put(data, !allocation.accessible ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE
                : allocation.writable  ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                       : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
      return;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(data, reinterpret_cast<CUmemoryPool>(allocation.pool.get()));
      return;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      put<std::size_t>(data, allocation.size);
      return;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      put<CUdeviceptr>(data, allocation.base);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put<unsigned long long>(data, mapped ? allocation.memory_block_id : allocation.buffer_id);
      return;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      put<unsigned>(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
      put<int>(data, -1);
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// Size of an attribute's value; 0 for one that does not exist.
std::size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
      return 4;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    default:
      return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                     attribute <= CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
                 ? 8
                 : 0;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return entry([&] {
    require(data != nullptr);
    const auto allocation = AllocationTable::of_process().find(ptr);
    require(allocation.has_value());
    answer(attribute, *allocation, ptr, data);
  });
}

// Unlike the single query, an unknown pointer or an attribute that says nothing gives zeros here.
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  return entry([&] {
    require(numAttributes > 0 && attributes && data);
    const auto allocation = AllocationTable::of_process().find(ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
      const std::size_t size = size_of(attributes[i]);
      require(size > 0 && data[i] != nullptr);
      std::fill_n(static_cast<char*>(data[i]), size, '\0');
      if (!allocation) {
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) put<int>(data[i], -2);
        continue;
      }
      try {
        answer(attributes[i], *allocation, ptr, data[i]);
      } catch (const Error&) {
        // Left at zero.
      }
    }
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return entry([&] {
    require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    // Copies are synchronous enough already; the value is kept for whoever asks.
    AllocationTable& table = AllocationTable::of_process();
    const auto allocation = table.find(ptr);
    unsigned wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    require(allocation && table.set_synchronous(allocation->base, wanted != 0));
  });
}
