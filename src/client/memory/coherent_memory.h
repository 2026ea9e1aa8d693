// Memory that host and device use at the same addresses: managed memory, and host memory that is mapped to
// the device.
//
// The device's half is an ordinary block of the arena. The host's half is mapped at the same addresses here,
// and its protection tells when the host touches it. Before work goes to the device, what the host wrote is
// sent there and all host pages are closed; a later access of the host waits for the device and fetches. The
// runtime itself uses a second view of the pages that is always open, so it never faults, and no other thread
// sees a page that is half fetched.
//
// The kernel keeps so many stretches of different protection of a process and no more. Where it refuses
// another one, the block is opened as a whole at the next touch: all that the device has is fetched first,
// and the host may write everywhere until the block is closed. A page that is still open is never taken for
// closed.
#pragma once

#include <cuda.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/call/call_hooks.h"
#include "client/memory/page_states.h"
#include "client/memory/range_advice.h"

namespace gpupool::client {

struct WorkerLink;

class CoherentMemory {
 public:
  enum class Kind { managed, host };
  struct About {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    int device = 0;
    Kind kind = Kind::managed;
    unsigned flags = 0;
  };

  /// The block must fill whole pages. Memory that was used before is cleared, as the host's half is.
  CUresult add(const About& about, bool fresh);
  /// The block that starts at `base` is no longer coherent; its host pages go.
  void drop(std::uint64_t base);
  /// The session is over (session_belongings.h).
  void forget();
  [[nodiscard]] std::optional<About> find(std::uint64_t address);
  [[nodiscard]] static bool any() { return host_memory_is_closed(); }

  /// Before work is given to a worker's devices: they get what the host wrote, the host's pages are closed.
  /// They stay closed as long as the lock is held, which must be until the work is posted.
  [[nodiscard]] HandedOver hand_over(const WorkerLink& worker);
  /// When a host function has returned: the same of what it may have touched. The work behind it finds what
  /// it wrote, and may write to what it has read.
  [[nodiscard]] HandedOver hand_back(const WorkerLink& worker);
  /// Before memory of a worker's devices is read: they get what the host wrote.
  void flush(const WorkerLink& worker);

  /// A thread touched an address that is protected. False when that is no coherent memory. Called by the
  /// threads that serve faults, one for each of these.
  ///
  /// The program's threads wait for the device. A host function cannot: streams wait for it. All that it may
  /// ask for is done before it begins, so it gets what the device has; and whoever waits for the device
  /// meanwhile does so without the lock.
  enum class By { program, host_function };
  bool serve(std::uint64_t address, bool write, By by);
  /// Lets the kernel read host memory for us: replaces parts that lie in coherent memory by their open view.
  void open_views(std::vector<iovec>& parts);

  /// Advice on managed memory. CUDA_ERROR_INVALID_VALUE when the range is not inside one allocation.
  template <class F>
  CUresult with_advice(std::uint64_t address, std::uint64_t size, F use) {
    const MutexLock lock(mutex_);
    Region* const region = region_of(address);
    if (region == nullptr || size == 0 || size > region->about.base + region->about.size - address)
      return CUDA_ERROR_INVALID_VALUE;
    if (region->about.kind != Kind::managed) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t begin = address - region->about.base;
    return use(region->advice, begin, begin + size);
  }

 private:
  struct Region {
    About about;
    std::byte* view;  ///< the open view
    std::uint64_t pages;
    PageStates states;
    RangeAdvice advice;
    bool served_function;  ///< a host function has been let in since it was closed
    bool whole;            ///< it is not known which pages are open: the next touch opens all of them
  };

  Region* region_of(std::uint64_t address) REQUIRES(mutex_);
  /// False when the kernel refuses that: then some of the pages may have the protection.
  [[nodiscard]] bool protect(Region& region, PageStates::Span span, int protection) REQUIRES(mutex_);
  /// What a touch asks for where all is opened at once.
  static PageStates::Step open_whole(const Region& region);
  void send(Region& region, PageStates::Span span) REQUIRES(mutex_);
  void fetch(Region& region, PageStates::Span span, By by) REQUIRES(mutex_);
  template <class M>
  static CUresult read(const About& about, std::uint64_t offset, std::uint64_t size, std::byte* into);
  bool fetch_without_lock(const Region& region, PageStates::Span span) REQUIRES(mutex_);
  static std::optional<PageStates::Span> missing_in(const Region& region, std::uint64_t first,
                                                    std::uint64_t last);
  void close_to_host(Region& region) REQUIRES(mutex_);
  void tell_failure(CUresult result) REQUIRES(mutex_);
  void send_dirty(Region& region) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::uint64_t, Region> regions_ GUARDED_BY(mutex_);
  std::uint64_t handed_over_ GUARDED_BY(mutex_) = 0;  ///< how often
  bool told_ GUARDED_BY(mutex_) = false;
};

/// One per process, never destroyed.
CoherentMemory& coherent_memory();

}  // namespace gpupool::client
