#include "softgpu/driver/memory/virtual_memory.h"

#include <sys/mman.h>

#include <bit>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/driver.h"

namespace softgpu::driver {
namespace {

bool whole_chunks(std::uint64_t value) {
  return value % chunk_bytes == 0;
}

void* pointer_to(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

// Address space without access or memory; null if the fixed place is taken.
std::uint64_t take_address_space(std::uint64_t place, std::size_t size) {
  const int fixed = place ? MAP_FIXED_NOREPLACE : 0;
  void* got =
      mmap(pointer_to(place), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (got == MAP_FAILED) return 0;
  if (place && got != pointer_to(place)) {  // kernels before 4.17 take the address as a hint only
    munmap(got, size);
    return 0;
  }
  return reinterpret_cast<std::uint64_t>(got);
}

}  // namespace

VirtualMemory& VirtualMemory::of_process() {
  static auto* const made = new VirtualMemory;  // streams' threads may still run while the process ends
  return *made;
}

VirtualMemory::Physical::~Physical() {
  if (!file) device.physical().free(offset, size);
  if (!imported) device.unreserve(size);
}

void VirtualMemory::Physical::map(std::uint64_t address, std::size_t length, std::size_t from) const {
  if (!file) {
    device.physical().map(address, length, offset + from);
    return;
  }
  void* const place = mmap(pointer_to(address), length, PROT_NONE, MAP_SHARED | MAP_FIXED, file->descriptor(),
                           static_cast<off_t>(from));
  if (place == MAP_FAILED) fail(CUDA_ERROR_MAP_FAILED);
}

std::uint64_t VirtualMemory::reserve(std::size_t size, std::size_t alignment, std::uint64_t requested) {
  require(size > 0 && whole_chunks(size));
  require(alignment == 0 || std::has_single_bit(alignment));
  alignment = std::max(alignment, chunk_bytes);
  require(size <= (std::size_t{1} << 46) && alignment <= (std::size_t{1} << 40));
  const gpupool::MutexLock lock(mutex_);
  std::uint64_t base = 0;
  if (requested && requested % alignment == 0) base = take_address_space(requested, size);
  if (!base) {
    const std::uint64_t start = take_address_space(0, size + alignment);
    require(start != 0, CUDA_ERROR_OUT_OF_MEMORY);
    base = (start + alignment - 1) / alignment * alignment;
    if (base > start) munmap(pointer_to(start), base - start);
    if (const std::uint64_t tail = start + alignment - base) munmap(pointer_to(base + size), tail);
  }
  reservations_.emplace(base, Reservation{size, 0});
  return base;
}

void VirtualMemory::release_reservation(std::uint64_t base, std::size_t size) {
  const gpupool::MutexLock lock(mutex_);
  const auto found = reservations_.find(base);
  require(found != reservations_.end() && found->second.size == size && found->second.mapped == 0);
  munmap(pointer_to(base), size);
  reservations_.erase(found);
}

CUmemGenericAllocationHandle VirtualMemory::create(Device& device, std::size_t size,
                                                   const CUmemAllocationProp& properties) {
  require(size > 0 && whole_chunks(size));
  device.reserve(size);
  if (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    if (auto file = SharedFile::make(device.card(), size)) {
      const gpupool::MutexLock lock(mutex_);
      const CUmemGenericAllocationHandle handle = next_handle_++;
      auto memory = std::make_shared<Physical>(device, std::move(*file), false, properties, handle);
      handles_.emplace(handle, Handle{std::move(memory), 1});
      return handle;
    }
  }
  std::size_t offset = 0;
  try {
    offset = device.physical().allocate(size);
  } catch (...) {
    device.unreserve(size);
    throw;
  }
  const gpupool::MutexLock lock(mutex_);
  const CUmemGenericAllocationHandle handle = next_handle_++;
  handles_.emplace(handle, Handle{std::make_shared<Physical>(device, offset, size, properties, handle), 1});
  return handle;
}

int VirtualMemory::export_descriptor(CUmemGenericAllocationHandle handle) const {
  const gpupool::MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  require(found != handles_.end());
  require(found->second.memory->file.has_value(), CUDA_ERROR_NOT_SUPPORTED);
  return found->second.memory->file->duplicate();
}

CUmemGenericAllocationHandle VirtualMemory::import_descriptor(int descriptor) {
  SharedFile file = SharedFile::adopt(descriptor);
  Device& device = Driver::get().device_on_card(file.card());
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device.ordinal();
  const gpupool::MutexLock lock(mutex_);
  const CUmemGenericAllocationHandle handle = next_handle_++;
  handles_.emplace(handle,
                   Handle{std::make_shared<Physical>(device, std::move(file), true, properties, handle), 1});
  return handle;
}

void VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  const gpupool::MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  require(found != handles_.end());
  // Mappings keep the memory itself alive, as CUDA promises.
  if (--found->second.references == 0) handles_.erase(found);
}

CUmemAllocationProp VirtualMemory::properties(CUmemGenericAllocationHandle handle) const {
  const gpupool::MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  require(found != handles_.end());
  return found->second.memory->properties;
}

CUmemGenericAllocationHandle VirtualMemory::retain(std::uint64_t address) {
  const gpupool::MutexLock lock(mutex_);
  auto next = mappings_.upper_bound(address);
  require(next != mappings_.begin());
  const auto& [base, mapping] = *std::prev(next);
  require(address - base < mapping.size);
  const auto [entry, added] = handles_.try_emplace(mapping.memory->id, Handle{mapping.memory, 0});
  ++entry->second.references;
  return entry->first;
}

std::map<std::uint64_t, VirtualMemory::Reservation>::iterator VirtualMemory::reservation_of(
    std::uint64_t address, std::size_t size) {
  auto next = reservations_.upper_bound(address);
  require(next != reservations_.begin());
  const auto found = std::prev(next);
  const std::size_t inside = address - found->first;
  require(inside < found->second.size && size <= found->second.size - inside);
  return found;
}

void VirtualMemory::map(std::uint64_t address, std::size_t size, std::size_t offset,
                        CUmemGenericAllocationHandle handle) {
  require(size > 0 && whole_chunks(size) && whole_chunks(address) && whole_chunks(offset));
  const gpupool::MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  require(found != handles_.end());
  const auto memory = found->second.memory;
  require(offset < memory->size && size <= memory->size - offset);
  const auto reservation = reservation_of(address, size);

  Allocation allocation;
  allocation.base = address;
  allocation.size = size;
  allocation.kind = MemoryKind::mapped;
  allocation.device = memory->device.ordinal();
  allocation.memory_block_id = memory->id;
  allocation.reservation_base = reservation->first;
  allocation.reservation_size = reservation->second.size;
  allocation.accessible = false;
  allocation.writable = false;
  require(AllocationTable::of_process().add(allocation));  // overlaps another mapping
  try {
    memory->map(address, size, offset);
  } catch (...) {
    AllocationTable::of_process().remove(address);
    throw;
  }
  mappings_.emplace(address, Mapping{size, memory, offset});
  reservation->second.mapped += size;
}

void VirtualMemory::unmap(std::uint64_t address, std::size_t size) {
  require(size > 0);
  const gpupool::MutexLock lock(mutex_);
  const auto reservation = reservation_of(address, size);
  // Only whole mappings, as CUDA requires; checked before anything is changed.
  std::size_t covered = 0;
  for (auto mapping = mappings_.find(address); covered < size; ++mapping) {
    require(mapping != mappings_.end() && mapping->first == address + covered);
    covered += mapping->second.size;
  }
  require(covered == size);
  mmap(pointer_to(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (auto mapping = mappings_.find(address);
       mapping != mappings_.end() && mapping->first < address + size;) {
    AllocationTable::of_process().remove(mapping->first);
    mapping = mappings_.erase(mapping);
  }
  reservation->second.mapped -= size;
}

void VirtualMemory::set_access(std::uint64_t address, std::size_t size, CUmemAccess_flags access) {
  require(access == CU_MEM_ACCESS_FLAGS_PROT_NONE || access == CU_MEM_ACCESS_FLAGS_PROT_READ ||
          access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const gpupool::MutexLock lock(mutex_);
  std::vector<std::uint64_t> starts;
  std::size_t covered = 0;
  for (auto mapping = mappings_.find(address); covered < size; ++mapping) {
    require(mapping != mappings_.end() && mapping->first == address + covered);
    starts.push_back(mapping->first);
    covered += mapping->second.size;
  }
  require(covered == size && size > 0);
  const bool readable = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool writable = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const int protection = (readable ? PROT_READ : PROT_NONE) | (writable ? PROT_WRITE : PROT_NONE);
  require(mprotect(pointer_to(address), size, protection) == 0, CUDA_ERROR_MAP_FAILED);
  for (const std::uint64_t start : starts)
    AllocationTable::of_process().set_access(start, readable, writable);
}

void VirtualMemory::park() {
  const gpupool::MutexLock lock(mutex_);
  for (const auto& [address, mapping] : mappings_) {
    void* const place = mmap(pointer_to(address), mapping.size, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    require(place != MAP_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
  }
}

void VirtualMemory::unpark() {
  const gpupool::MutexLock lock(mutex_);
  for (const auto& [address, mapping] : mappings_) {
    mapping.memory->map(address, mapping.size, mapping.offset);
    const auto allocation = AllocationTable::of_process().find(address);
    require(allocation.has_value(), CUDA_ERROR_MAP_FAILED);
    const int protection =
        (allocation->accessible ? PROT_READ : PROT_NONE) | (allocation->writable ? PROT_WRITE : PROT_NONE);
    require(mprotect(pointer_to(address), mapping.size, protection) == 0, CUDA_ERROR_MAP_FAILED);
  }
}

VirtualMemory::Window VirtualMemory::busiest() const {
  const gpupool::MutexLock lock(mutex_);
  Window window;
  for (const auto& [base, reservation] : reservations_) {
    if (reservation.mapped > window.mapped) window = {base, base + reservation.size, reservation.mapped};
  }
  return window;
}

}  // namespace softgpu::driver
