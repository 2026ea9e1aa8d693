#include "client/memory/host_mirrors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/link/payload_sinks.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/device_memory.h"
#include "client/process/log.h"
#include "client/process/session_belongings.h"
#include "client/session/attach_again.h"
#include "shared_api/error_log.h"

namespace gpupool::client {
namespace {

constexpr std::size_t block_bytes = 4096;
constexpr std::size_t piece_bytes = std::size_t{64} << 20;

/// Whether all pages of a region are still mapped.
bool is_there(const HostMemory::Region& region) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t most = 4096;  // pages in one look
  unsigned char resident[most];
  const std::uintptr_t end = region.address + region.size;
  for (std::uintptr_t at = region.address / page * page; at < end; at += most * page) {
    const std::size_t size = std::min<std::size_t>(end - at, most * page);
    if (mincore(reinterpret_cast<void*>(at), size, resident) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

}  // namespace

HostMirrors& host_mirrors() {
  static HostMirrors& only = kept_for_session<HostMirrors>([](HostMirrors& kept) { kept.forget(); });
  return only;
}

CUresult HostMirrors::map(const HostMemory::Region& region, CUdeviceptr& out) try {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  // A copy that nobody waited for is in place before what is in place is compared.
  arriving_copies().settle(reinterpret_cast<const void*>(region.address), region.size);
  {
    const MutexLock lock(mutex_);
    if (const auto known = find(region, context, out)) return *known;
  }
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  for (int attempt = 0; attempt < 2 && result == CUDA_ERROR_DEVICE_UNAVAILABLE; ++attempt) {
    // Without the mutex: who attaches anew needs it, and this may wait for that. The lease may end before the
    // mirror is made: then the next one is waited for.
    if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
    const MutexLock lock(mutex_);
    const auto known = find(region, context, out);
    result = known ? *known : make(region, object->device, out);
  }
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult HostMirrors::make(const HostMemory::Region& region, int device, CUdeviceptr& out) {
  const NoLeaseWait no_wait;
  Mirror mirror;
  mirror.region = region;
  mirror.device = device;
  mirror.twin.resize(region.size);
  // The mirror ends with the region and not with the context.
  if (const CUresult bad = device_memory().allocate(device, region.size, 0, 0, mirror.address);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  messages::ClearPages clear;
  clear.device = mirror.device;
  clear.address = mirror.address;
  clear.size = region.size;
  if (const CUresult bad = post(clear, any_context); bad != CUDA_SUCCESS) {
    static_cast<void>(device_memory().free(mirror.address, 0));
    return bad;
  }
  out = mirror.address;
  mirrors_.emplace(region.address, std::move(mirror));
  mirrored_regions.store(mirrors_.size(), std::memory_order_release);
  return CUDA_SUCCESS;
}

std::optional<CUresult> HostMirrors::find(const HostMemory::Region& region, std::uint64_t context,
                                          CUdeviceptr& out) {
  const auto known = mirrors_.find(region.address);
  if (known == mirrors_.end()) return std::nullopt;
  if (&worker_of_device(known->second.device) != &worker_of_context(context))
    return refuse_mixed("cuMemHostGetDevicePointer", "a device of another node uses this host memory");
  out = known->second.address;
  return CUDA_SUCCESS;
}

void HostMirrors::unmap(std::uintptr_t host) {
  if (!any()) return;
  const MutexLock lock(mutex_);
  const auto found = mirrors_.find(host);
  if (found == mirrors_.end()) return;
  take(found->second);
  static_cast<void>(device_memory().free(found->second.address, 0));
  mirrors_.erase(found);
  mirrored_regions.store(mirrors_.size(), std::memory_order_release);
}

void HostMirrors::send(Mirror& mirror) {
  const auto* const host = reinterpret_cast<const std::byte*>(mirror.region.address);
  const std::size_t size = mirror.twin.size();
  const auto differs = [&](std::size_t at) {
    return std::memcmp(host + at, mirror.twin.data() + at, std::min(block_bytes, size - at)) != 0;
  };
  for (std::size_t at = 0; at < size;) {
    if (!differs(at)) {
      at += block_bytes;
      continue;
    }
    take(mirror);  // a block is sent whole, so what the device wrote into it must be in it
    std::size_t end = at;
    do {
      end = std::min(end + block_bytes, size);
    } while (end < size && end - at < piece_bytes && differs(end));
    std::memcpy(mirror.twin.data() + at, host + at, end - at);
    messages::WritePages m;
    m.device = mirror.device;
    m.address = mirror.address + at;
    const iovec part{mirror.twin.data() + at, end - at};
    runtime().counters.sent(end - at);
    static_cast<void>(
        post(m, any_context, {&part, 1, end - at}));  // a lost connection tells at the next call
    at = end;
  }
}

void HostMirrors::take(Mirror& mirror) {
  if (!std::exchange(mirror.device_may_differ, false)) return;
  if (!is_there(mirror.region)) return;  // the next work tells
  if ((mirror.region.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 && mirror.region.registered) return;
  auto* const host = reinterpret_cast<std::byte*>(mirror.region.address);
  std::vector<std::byte> theirs;
  for (std::size_t at = 0; at < mirror.twin.size(); at += piece_bytes) {
    const std::size_t size = std::min(piece_bytes, mirror.twin.size() - at);
    theirs.resize(size);
    messages::ReadPages m;
    m.device = mirror.device;
    m.address = mirror.address + at;
    m.size = size;
    replies::ReadPages reply;
    std::vector<std::byte> bytes;
    IntoMemory sink(theirs.data(), size);
    CUresult own = CUDA_ERROR_DEVICE_UNAVAILABLE;
    static_cast<void>(ask(m, reply, any_context, bytes, {}, &sink, &own));
    if (own != CUDA_SUCCESS) return;  // every later call of the program tells
    runtime().counters.received(size);
    std::byte* const twin = mirror.twin.data() + at;
    for (std::size_t block = 0; block < size; block += block_bytes) {
      const std::size_t end = std::min(size, block + block_bytes);
      if (std::memcmp(twin + block, theirs.data() + block, end - block) == 0) continue;
      for (std::size_t n = block; n < end; ++n) {
        if (twin[n] != theirs[n]) twin[n] = host[at + n] = theirs[n];
      }
    }
  }
}

CUresult HostMirrors::send_changes(const WorkerLink& worker) {
  const MutexLock lock(mutex_);
  for (auto& [host, mirror] : mirrors_) {
    if (!worker.has_device(mirror.device)) continue;
    if (!is_there(mirror.region)) {
      char text[128];
      std::snprintf(text, sizeof(text), "host memory at 0x%llx was freed without cuMemHostUnregister",
                    static_cast<unsigned long long>(host));
      remember(text);
      error_log().add(text);
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    send(mirror);
    mirror.device_may_differ = true;
  }
  return CUDA_SUCCESS;
}

void HostMirrors::take_changes(const WorkerLink& worker) {
  const MutexLock lock(mutex_);
  for (auto& [host, mirror] : mirrors_) {
    if (worker.has_device(mirror.device)) take(mirror);
  }
}

std::optional<HostMirrors::Found> HostMirrors::behind(CUdeviceptr address) {
  if (!any()) return std::nullopt;
  const MutexLock lock(mutex_);
  for (const auto& [host, mirror] : mirrors_) {
    if (address >= mirror.address && address - mirror.address < mirror.region.size)
      return Found{mirror.region, address - mirror.address};
  }
  return std::nullopt;
}

bool HostMirrors::overlaps(const void* start, std::size_t size) {
  if (!any()) return false;
  const auto first = reinterpret_cast<std::uintptr_t>(start);
  const MutexLock lock(mutex_);
  return std::any_of(mirrors_.begin(), mirrors_.end(), [&](const auto& entry) {
    const HostMemory::Region& region = entry.second.region;
    return region.address < first + size && first < region.address + region.size;
  });
}

std::optional<CUdeviceptr> HostMirrors::address_of(std::uintptr_t host) {
  if (!any()) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto found = mirrors_.find(host);
  return found == mirrors_.end() ? std::nullopt : std::optional(found->second.address);
}

void HostMirrors::forget() {
  const MutexLock lock(mutex_);
  mirrors_.clear();
  mirrored_regions.store(0);
}

}  // namespace gpupool::client
