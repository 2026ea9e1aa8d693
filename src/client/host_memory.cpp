#include "client/host_memory.h"

#include <sys/mman.h>

namespace gpupool::client {

HostMemory& host_memory() {
  static HostMemory* const only = new HostMemory;
  return *only;
}

CUresult HostMemory::allocate(std::size_t size, unsigned flags, void*& out) {
  // Page-aligned memory of its own, as CUDA gives; locking pages would serve no device of this machine.
  void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto address = reinterpret_cast<std::uintptr_t>(got);
  const std::lock_guard lock(mutex_);
  regions_[address] = {address, size, flags, false};
  out = got;
  return CUDA_SUCCESS;
}

CUresult HostMemory::free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end() || found->second.registered) return CUDA_ERROR_INVALID_VALUE;
  munmap(address, found->second.size);
  regions_.erase(found);
  return CUDA_SUCCESS;
}

CUresult HostMemory::add(void* address, std::size_t size, unsigned flags) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto next = regions_.upper_bound(start + size - 1);
  if (next != regions_.begin()) {
    --next;
    if (next->second.address + next->second.size > start) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  regions_[start] = {start, size, flags, true};
  return CUDA_SUCCESS;
}

CUresult HostMemory::remove(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end() || !found->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  regions_.erase(found);
  return CUDA_SUCCESS;
}

std::optional<HostMemory::Region> HostMemory::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto next = regions_.upper_bound(at);
  if (next == regions_.begin()) return std::nullopt;
  --next;
  if (at - next->second.address >= next->second.size) return std::nullopt;
  return next->second;
}

}  // namespace gpupool::client
