#include "worker/device_arena.h"

#include <stdexcept>
#include <string>

namespace gpupool::worker {
namespace {

CUmemAllocationProp properties(CUdevice device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  return wanted;
}

}  // namespace

DeviceArena::DeviceArena(const DriverApi& api, CUdevice device, MemoryAccount& account, std::uint64_t wish)
    : api_(api), device_(device), account_(account) {
  const auto wanted = properties(device);
  std::size_t granularity = 0;
  CUresult result =
      api.cuMemGetAllocationGranularity_(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS || granularity == 0) {
    throw std::runtime_error(
        "the driver has no virtual memory management (cuMemGetAllocationGranularity: error " +
        std::to_string(result) + ")");
  }
  granularity_ = granularity;
  CUdeviceptr base = 0;
  result = api.cuMemAddressReserve_(&base, span, 0, wish, 0);
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error("the driver cannot reserve 1 TiB of addresses (error " + std::to_string(result) +
                             ")");
  }
  base_ = base;
}

bool DeviceArena::overlaps(std::uint64_t address, std::uint64_t size) const {
  auto next = mapped_.lower_bound(address);
  if (next != mapped_.end() && next->first < address + size) return true;
  if (next == mapped_.begin()) return false;
  --next;
  return next->first + next->second > address;
}

CUresult DeviceArena::map(std::uint64_t address, std::uint64_t size) {
  if (size == 0 || size > span || address < base_ || address - base_ > span - size ||
      address % granularity_ != 0 || size % granularity_ != 0 || overlaps(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!account_.reserve(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto wanted = properties(device_);
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = api_.cuMemCreate_(&memory, size, &wanted, 0);
  if (result == CUDA_SUCCESS) {
    result = api_.cuMemMap_(address, size, 0, memory, 0);
    if (result == CUDA_SUCCESS) {
      CUmemAccessDesc access{};
      access.location = wanted.location;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      result = api_.cuMemSetAccess_(address, size, &access, 1);
      if (result != CUDA_SUCCESS) api_.cuMemUnmap_(address, size);
    }
    api_.cuMemRelease_(memory);  // the mapping keeps the memory
  }
  if (result != CUDA_SUCCESS) {
    account_.release(size);
    return result;
  }
  mapped_.emplace(address, size);
  if (!host_reachable_) {
    void* host = nullptr;
    host_reachable_ =
        api_.cuPointerGetAttribute_(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == CUDA_SUCCESS &&
        reinterpret_cast<std::uint64_t>(host) == address;
  }
  return CUDA_SUCCESS;
}

CUresult DeviceArena::unmap(std::uint64_t address) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = api_.cuMemUnmap_(address, found->second);
  if (result != CUDA_SUCCESS) return result;
  account_.release(found->second);
  mapped_.erase(found);
  return CUDA_SUCCESS;
}

void DeviceArena::clear() {
  while (!mapped_.empty()) {
    const auto first = mapped_.begin();
    api_.cuMemUnmap_(first->first, first->second);
    account_.release(first->second);
    mapped_.erase(first);
  }
}

bool DeviceArena::covers(std::uint64_t address, std::uint64_t size) const {
  if (size == 0) return false;
  auto at = mapped_.upper_bound(address);
  if (at == mapped_.begin()) return false;
  --at;
  // Neighbouring mappings join without a gap.
  std::uint64_t covered = at->first + at->second;
  if (covered <= address) return false;
  while (covered - address < size) {
    ++at;
    if (at == mapped_.end() || at->first != covered) return false;
    covered += at->second;
  }
  return true;
}

}  // namespace gpupool::worker
