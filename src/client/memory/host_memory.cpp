#include "client/memory/host_memory.h"

#include <sys/mman.h>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/device_memory.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {

HostMemory& host_memory() {
  static HostMemory& only = kept_for_session<HostMemory>([](HostMemory& kept) { kept.forget(); });
  return only;
}

CUresult HostMemory::allocate(std::size_t size, unsigned flags, void*& out) {
  // Page-aligned memory of its own, as CUDA gives; locking pages would serve no device of this machine.
  void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto address = reinterpret_cast<std::uintptr_t>(got);
  const MutexLock lock(mutex_);
  regions_[address] = {address, size, flags, false, false};
  out = got;
  return CUDA_SUCCESS;
}

CUresult HostMemory::allocate_mapped(std::size_t size, unsigned flags, void*& out) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  CUdeviceptr address = 0;
  const CUresult result = device_memory().allocate_coherent(object->device, size, CoherentMemory::Kind::host,
                                                            flags, context, address);
  if (result != CUDA_SUCCESS) return result;
  const MutexLock lock(mutex_);
  regions_[address] = {address, size, flags, false, true};
  out = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

CUresult HostMemory::free(void* address) {
  MutexLock lock(mutex_);
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end() || found->second.registered) return CUDA_ERROR_INVALID_VALUE;
  const Region region = found->second;
  regions_.erase(found);
  lock.unlock();
  if (region.coherent) {
    if (const CUresult bad = runtime().enter_without_lease(); bad != CUDA_SUCCESS) return bad;
    return device_memory().free(region.address, 0);
  }
  arriving_copies().settle(address, region.size);
  munmap(address, region.size);
  return CUDA_SUCCESS;
}

void HostMemory::forget(std::uintptr_t address) {
  const MutexLock lock(mutex_);
  const auto found = regions_.find(address);
  if (found != regions_.end() && found->second.coherent) regions_.erase(found);
}

CUresult HostMemory::add(void* address, std::size_t size, unsigned flags) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const MutexLock lock(mutex_);
  auto next = regions_.upper_bound(start + size - 1);
  if (next != regions_.begin()) {
    --next;
    if (next->second.address + next->second.size > start) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  regions_[start] = {start, size, flags, true, false};
  return CUDA_SUCCESS;
}

CUresult HostMemory::remove(void* address) {
  if (const auto region = find(address)) arriving_copies().settle(address, region->size);
  const MutexLock lock(mutex_);
  const auto found = regions_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == regions_.end() || !found->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  regions_.erase(found);
  return CUDA_SUCCESS;
}

std::optional<HostMemory::Region> HostMemory::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const MutexLock lock(mutex_);
  auto next = regions_.upper_bound(at);
  if (next == regions_.begin()) return std::nullopt;
  --next;
  if (at - next->second.address >= next->second.size) return std::nullopt;
  return next->second;
}

void HostMemory::forget() {
  const MutexLock lock(mutex_);
  std::erase_if(regions_, [](const auto& entry) { return entry.second.coherent; });
}

}  // namespace gpupool::client
