#include "client/memory/virtual_memory.h"

#include <algorithm>
#include <bit>

#include "base/mutex.h"

namespace gpupool::client {

VirtualMemory::Reservations::iterator VirtualMemory::reservation_of(std::uint64_t address,
                                                                    std::uint64_t size) {
  auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return reservations_.end();
  --next;
  const std::uint64_t inside = address - next->first;
  return inside < next->second.size && size <= next->second.size - inside ? next : reservations_.end();
}

VirtualMemory::Mappings::iterator VirtualMemory::whole_mappings(std::uint64_t address, std::uint64_t size) {
  const auto first = mappings_.find(address);
  std::uint64_t covered = 0;
  for (auto at = first; covered < size; ++at) {
    if (at == mappings_.end() || at->first != address + covered) return mappings_.end();
    covered += at->second.size;
  }
  return size != 0 && covered == size ? first : mappings_.end();
}

CUresult VirtualMemory::reserve(int place, std::uint64_t size, std::uint64_t aligned, std::uint64_t wish,
                                std::uint64_t& out) {
  const std::uint64_t granularity = host_.granularity(place);
  if (granularity == 0) return CUDA_ERROR_INVALID_DEVICE;
  if (size == 0 || size % granularity != 0 || (aligned != 0 && !std::has_single_bit(aligned)))
    return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  const auto got = host_.set_aside(place, size, std::max(aligned, granularity), wish);
  if (!got) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_.emplace(*got, Reservation{size, place, 0});
  out = *got;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::free(std::uint64_t address, std::uint64_t size) {
  const MutexLock lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size != size || found->second.mapped != 0)
    return CUDA_ERROR_INVALID_VALUE;
  host_.give_back(found->second.place, address, size);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create(std::uint64_t size, const CUmemAllocationProp& properties,
                               std::uint64_t& out) {
  const int device = properties.location.id;
  const std::uint64_t granularity = host_.granularity(device);
  if (granularity == 0) return CUDA_ERROR_INVALID_DEVICE;
  if (size == 0 || size % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  if (!host_.charge(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical* physical = nullptr;
  const std::uint64_t handle = physical_.mint(physical);
  const CUresult result =
      handle == 0 ? CUDA_ERROR_OUT_OF_MEMORY : host_.create(handle, device, size, properties);
  if (result != CUDA_SUCCESS) {
    host_.discharge(device, size);
    if (handle != 0) physical_.drop(handle);
    return result;
  }
  *physical = {size, properties, 1, 0, true};
  out = handle;
  return CUDA_SUCCESS;
}

// Not under the lock while the worker is asked: nobody can use the handle before it has a reference.
CUresult VirtualMemory::import(ExportKind kind, std::span<const std::byte> ticket, std::uint64_t& out,
                               ImportedMemory& imported) {
  Physical* physical = nullptr;
  const std::uint64_t handle = physical_.mint(physical);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult bad = host_.import(handle, kind, ticket, imported); bad != CUDA_SUCCESS) {
    physical_.drop(handle);
    return bad;
  }
  const MutexLock lock(mutex_);
  const bool known = host_.granularity(imported.device) != 0 && imported.offset <= imported.size &&
                     imported.length <= imported.size - imported.offset;
  if (!known || (!imported.counted && !host_.charge(imported.device, imported.size))) {
    const CUresult result = host_.release(handle);
    physical_.drop(handle);
    return result != CUDA_SUCCESS ? result : known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = imported.device;
  *physical = {imported.size, properties, 1, 0, !imported.counted};
  out = handle;
  return CUDA_SUCCESS;
}

bool VirtualMemory::has(std::uint64_t memory) {
  const MutexLock lock(mutex_);
  const Physical* const physical = physical_.find(memory);
  return physical != nullptr && physical->references > 0;
}

CUresult VirtualMemory::forget_if_unused(std::uint64_t memory, Physical& physical) {
  if (physical.references > 0 || physical.mappings > 0) return CUDA_SUCCESS;
  if (physical.counted) host_.discharge(physical.properties.location.id, physical.size);
  const CUresult result = host_.release(memory);
  physical_.drop(memory);
  return result;
}

CUresult VirtualMemory::release(std::uint64_t memory) {
  const MutexLock lock(mutex_);
  Physical* const physical = physical_.find(memory);
  if (physical == nullptr || physical->references == 0) return CUDA_ERROR_INVALID_VALUE;
  --physical->references;
  return forget_if_unused(memory, *physical);
}

CUresult VirtualMemory::map(std::uint64_t address, std::uint64_t size, std::uint64_t offset,
                            std::uint64_t memory) {
  const MutexLock lock(mutex_);
  Physical* const physical = physical_.find(memory);
  if (physical == nullptr || physical->references == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto reservation = reservation_of(address, size);
  if (reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t granularity = host_.granularity(physical->properties.location.id);
  if (size == 0 || size % granularity != 0 || address % granularity != 0 || offset % granularity != 0 ||
      offset > physical->size || size > physical->size - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + size) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.size > address) return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = host_.map(reservation->second.place, address, size, offset, memory);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  mappings_.emplace(address, Mapping{size, memory, CU_MEM_ACCESS_FLAGS_PROT_NONE});
  reservation->second.mapped += size;
  ++physical->mappings;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unmap(std::uint64_t address, std::uint64_t size) {
  const MutexLock lock(mutex_);
  const auto reservation = reservation_of(address, size);
  auto at = whole_mappings(address, size);
  if (reservation == reservations_.end() || at == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = host_.unmap(reservation->second.place, address, size);
  if (result != CUDA_SUCCESS) return result;
  reservation->second.mapped -= size;
  while (at != mappings_.end() && at->first - address < size) {
    const std::uint64_t memory = at->second.memory;
    at = mappings_.erase(at);
    Physical* const physical = physical_.find(memory);
    --physical->mappings;
    const CUresult forgotten = forget_if_unused(memory, *physical);
    if (result == CUDA_SUCCESS) result = forgotten;
  }
  return result;
}

CUresult VirtualMemory::set_access(std::uint64_t address, std::uint64_t size, int device,
                                   CUmemAccess_flags access) {
  const MutexLock lock(mutex_);
  const auto reservation = reservation_of(address, size);
  const auto first = whole_mappings(address, size);
  if (reservation == reservations_.end() || first == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto end = mappings_.end();
  const auto inside = [&](const auto& at) { return at != end && at->first - address < size; };
  for (auto at = first; inside(at); ++at) {
    if (physical_.find(at->second.memory)->properties.location.id != device)
      return CUDA_ERROR_INVALID_DEVICE;  // no peer access between the devices of a session
  }
  const CUresult result = host_.set_access(reservation->second.place, address, size, access);
  if (result != CUDA_SUCCESS) return result;
  for (auto at = first; inside(at); ++at) at->second.access = access;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::retain(std::uint64_t address, std::uint64_t& out) {
  const auto found = find(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  Physical* const physical = physical_.find(found->memory);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++physical->references;
  out = found->memory;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::properties(std::uint64_t memory, CUmemAllocationProp& out) {
  const MutexLock lock(mutex_);
  const Physical* const physical = physical_.find(memory);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out = physical->properties;
  return CUDA_SUCCESS;
}

std::optional<VirtualMemory::Found> VirtualMemory::find(std::uint64_t address) {
  const MutexLock lock(mutex_);
  auto mapping = mappings_.upper_bound(address);
  if (mapping == mappings_.begin()) return std::nullopt;
  --mapping;
  if (address - mapping->first >= mapping->second.size) return std::nullopt;
  const auto reservation = reservation_of(address, 1);
  const Physical* const physical = physical_.find(mapping->second.memory);
  if (reservation == reservations_.end() || physical == nullptr) return std::nullopt;
  return Found{reservation->first,    reservation->second.size, mapping->first,
               mapping->second.size,  mapping->second.memory,   physical->properties.location.id,
               mapping->second.access};
}

void VirtualMemory::forget() {
  const MutexLock lock(mutex_);
  reservations_.clear();
  mappings_.clear();
  physical_.forget_all();
}

}  // namespace gpupool::client
