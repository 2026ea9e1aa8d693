// Host memory of the program's own that kernels use: the device has a mirror of it at other addresses.
//
// Each mirror has a twin here, what device and host last agreed on. Before work the bytes in which the host
// differs from the twin are sent; after waiting for the device the bytes in which the device differs are
// taken over. So both may write different bytes of the same page.
//
// Nobody waits for a lease under mutex_: a mirror cannot be made there without one (NoLeaseWait), so the
// call gives the mutex up, waits for the lease and tries once more.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/call/call_hooks.h"
#include "client/memory/host_memory.h"

namespace gpupool::client {

struct WorkerLink;

class HostMirrors {
 public:
  [[nodiscard]] static bool any() { return mirrored_regions.load(std::memory_order_acquire) != 0; }

  /// Device address of the mirror of a region; made when first asked for, in the current context.
  CUresult map(const HostMemory::Region& region, CUdeviceptr& out);
  /// Waits for the device if it may have written, and gives the mirror back.
  void unmap(std::uintptr_t host);

  /// Before work is given to a worker's devices. CUDA_ERROR_ILLEGAL_ADDRESS where the program has given
  /// memory back to the system without cuMemHostUnregister, which alone ends that.
  CUresult send_changes(const WorkerLink& worker);
  /// After one of its devices has been waited for.
  void take_changes(const WorkerLink& worker);

  struct Found {
    HostMemory::Region region;
    std::uint64_t offset;
  };
  /// The host memory behind a mirror's address.
  [[nodiscard]] std::optional<Found> behind(CUdeviceptr address);
  [[nodiscard]] std::optional<CUdeviceptr> address_of(std::uintptr_t host);
  /// Whether the device has a mirror of any of it.
  [[nodiscard]] bool overlaps(const void* start, std::size_t size);
  /// The session is over (session_belongings.h).
  void forget();

 private:
  struct Mirror {
    HostMemory::Region region;
    int device = 0;
    CUdeviceptr address = 0;
    std::vector<std::byte> twin;
    bool device_may_differ = false;
  };
  /// What map() answers for a region that has one already.
  std::optional<CUresult> find(const HostMemory::Region& region, std::uint64_t context, CUdeviceptr& out)
      REQUIRES(mutex_);
  /// A mirror that there is not yet. CUDA_ERROR_DEVICE_UNAVAILABLE where that needs a lease to be waited for.
  CUresult make(const HostMemory::Region& region, int device, CUdeviceptr& out) REQUIRES(mutex_);
  void send(Mirror& mirror);  // precondition of both: mutex_ held
  void take(Mirror& mirror);

  Mutex mutex_;
  std::map<std::uintptr_t, Mirror> mirrors_ GUARDED_BY(mutex_);
};

/// One per process, never destroyed.
HostMirrors& host_mirrors();

}  // namespace gpupool::client
