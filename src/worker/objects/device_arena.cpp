#include "worker/objects/device_arena.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace gpupool::worker {
namespace {

CUmemAllocationProp properties_of(const DriverApi& api, CUdevice device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  int shareable = 0;
  if (api.cuDeviceGetAttribute_(&shareable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                device) == CUDA_SUCCESS &&
      shareable != 0) {
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  return wanted;
}

}  // namespace

DeviceArena::DeviceArena(const DriverApi& api, CUdevice device, MemoryAccount& account, std::uint64_t wish)
    : api_(api), device_(device), properties_(properties_of(api, device)), account_(account) {
  std::size_t granularity = 0;
  CUresult result =
      api.cuMemGetAllocationGranularity_(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
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
  return next->first + next->second.size > address;
}

bool DeviceArena::vacant(std::uint64_t address, std::uint64_t size) const {
  return size != 0 && size <= span && address >= base_ && address - base_ <= span - size &&
         address % granularity_ == 0 && size % granularity_ == 0 && !overlaps(address, size);
}

CUresult DeviceArena::map(std::uint64_t address, std::uint64_t size) {
  if (!vacant(address, size)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<PhysicalMemory> memory;
  CUresult result = PhysicalMemory::create(api_, account_, size, properties_, memory);
  if (result == CUDA_SUCCESS) result = map(address, size, 0, std::move(memory));
  if (result != CUDA_SUCCESS) return result;
  result = set_access(address, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result != CUDA_SUCCESS) static_cast<void>(unmap(address));
  return result;
}

CUresult DeviceArena::map(std::uint64_t address, std::uint64_t size, std::uint64_t offset,
                          std::shared_ptr<PhysicalMemory> memory) {
  if (!vacant(address, size) || offset % granularity_ != 0 || offset > memory->size() ||
      size > memory->size() - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = api_.cuMemMap_(address, size, offset, memory->handle(), 0);
  if (result == CUDA_SUCCESS)
    mapped_.emplace(address, Mapping{size, std::move(memory), CU_MEM_ACCESS_FLAGS_PROT_NONE, offset});
  return result;
}

std::shared_ptr<PhysicalMemory> DeviceArena::memory_at(std::uint64_t address, std::uint64_t size) const {
  auto at = mapped_.upper_bound(address);
  if (at == mapped_.begin()) return nullptr;
  --at;
  const std::uint64_t inside = address - at->first;
  return inside < at->second.size && size <= at->second.size - inside ? at->second.memory : nullptr;
}

bool DeviceArena::whole_mappings(std::uint64_t address, std::uint64_t size) const {
  if (size == 0 || size > span) return false;
  std::uint64_t covered = 0;
  for (auto at = mapped_.find(address); covered < size; ++at) {
    if (at == mapped_.end() || at->first != address + covered) return false;
    covered += at->second.size;
  }
  return covered == size;
}

CUresult DeviceArena::set_access(std::uint64_t address, std::uint64_t size, CUmemAccess_flags access) {
  if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE && access != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!whole_mappings(address, size)) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = mapped_.find(address); at != mapped_.end() && at->first - address < size; ++at) {
    CUmemAccessDesc wanted{};
    wanted.location = at->second.memory->location();
    wanted.flags = access;
    const CUresult result = api_.cuMemSetAccess_(at->first, at->second.size, &wanted, 1);
    if (result != CUDA_SUCCESS) return result;
    at->second.access = access;
    if (at->second.usable()) try_host(at->first);
  }
  return CUDA_SUCCESS;
}

/// Asked once: a driver whose device memory the CPU can reach says so of its first mapping.
void DeviceArena::try_host(std::uint64_t address) {
  if (std::exchange(host_asked_, true)) return;
  void* host = nullptr;
  host_reachable_ =
      api_.cuPointerGetAttribute_(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == CUDA_SUCCESS &&
      reinterpret_cast<std::uint64_t>(host) == address;
}

CUresult DeviceArena::unmap(std::uint64_t address) {
  const auto found = mapped_.find(address);
  if (found == mapped_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = api_.cuMemUnmap_(address, found->second.size);
  if (result == CUDA_SUCCESS) mapped_.erase(found);
  return result;
}

CUresult DeviceArena::unmap_all(std::uint64_t address, std::uint64_t size) {
  if (!whole_mappings(address, size)) return CUDA_ERROR_INVALID_VALUE;
  for (const std::uint64_t end = address + size; address < end;) {
    const std::uint64_t next = address + mapped_.at(address).size;
    if (const CUresult bad = unmap(address); bad != CUDA_SUCCESS) return bad;
    address = next;
  }
  return CUDA_SUCCESS;
}

void DeviceArena::clear() {
  for (const auto& [address, mapping] : mapped_) api_.cuMemUnmap_(address, mapping.size);
  mapped_.clear();
}

std::shared_ptr<PhysicalMemory> DeviceArena::memory_at(std::uint64_t address, std::uint64_t size,
                                                       std::uint64_t& offset) const {
  auto at = mapped_.upper_bound(address);
  if (at == mapped_.begin() || size == 0) return nullptr;
  --at;
  const std::uint64_t inside = address - at->first;
  if (inside >= at->second.size || size > at->second.size - inside) return nullptr;
  offset = at->second.offset + inside;
  return at->second.memory;
}

bool DeviceArena::covers(std::uint64_t address, std::uint64_t size) const {
  return covered(address, size, [](const Mapping& mapping) { return mapping.usable(); });
}

bool DeviceArena::covers_readable(std::uint64_t address, std::uint64_t size) const {
  return covered(address, size,
                 [](const Mapping& mapping) { return mapping.access != CU_MEM_ACCESS_FLAGS_PROT_NONE; });
}

template <class Counts>
bool DeviceArena::covered(std::uint64_t address, std::uint64_t size, Counts counts) const {
  if (size == 0) return false;
  auto at = mapped_.upper_bound(address);
  if (at == mapped_.begin()) return false;
  --at;
  // Neighbouring mappings join without a gap.
  std::uint64_t end = at->first + at->second.size;
  if (end <= address || !counts(at->second)) return false;
  while (end - address < size) {
    ++at;
    if (at == mapped_.end() || at->first != end || !counts(at->second)) return false;
    end += at->second.size;
  }
  return true;
}

}  // namespace gpupool::worker
