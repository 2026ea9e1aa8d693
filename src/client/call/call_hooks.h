// What happens around every call besides sending it. Declared here and defined in the rooms that do it, so
// that `call.h`, which everything includes, includes none of them.
#pragma once

#include <cuda.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace gpupool::client {

struct WorkerLink;

// ---- streams and events: completion.cpp

/// A message that gives `stream` something to do was sent as frame `place`, in `context` (0: the current
/// one).
void note_work(std::uint64_t stream, std::uint64_t context, std::uint64_t place);
/// A message that has gone may have `event` recorded: what is known of it here does not count any more.
void note_handed_out(std::uint64_t event);
/// A wait that was sent as frame `place` has ended well. A program may know from it that other streams are
/// complete too, so that an unsure answer about them would be wrong.
void note_wait(const WorkerLink& worker, std::uint64_t place);

// ---- the program's functions in streams: host_functions.cpp

/// A message is given its place among this process's frames that has the stream call so many of them.
void expect_host_functions(const WorkerLink& worker, int count);

/// For a message that holds the worker up. The worker executes a process's messages in order, so one that
/// makes it wait for the device must not stand before the answer that the device waits for.
class HoldsUp {
 public:
  explicit HoldsUp(const WorkerLink& worker) : worker_(worker) {}
  ~HoldsUp();
  HoldsUp(const HoldsUp&) = delete;
  HoldsUp& operator=(const HoldsUp&) = delete;

  /// Thrown by `check`.
  struct TooEarly {};

  /// Until the functions that were expected have run. From the second time on, who would launch more waits in
  /// let_held_up_go_first(): in a program that launches them all the time there would be no end.
  void wait();
  /// Where the message is given its place: another thread may have launched one since wait().
  void check() const;

 private:
  const WorkerLink& worker_;
  int waits_ = 0;
};

/// Before functions are launched, with no lock held.
void let_held_up_go_first(const WorkerLink& worker);
/// Before work that does not make the worker wait: but a driver takes about a thousand pieces of it, and
/// makes the caller wait then. So there are never that many behind a function that has not run.
void limit_work_behind_host_functions(const WorkerLink& worker);

// ---- host memory that the device uses too: shared_host_memory.cpp

/// Regions of coherent memory, whose pages may be closed to the host (coherent_memory.h), and of host memory
/// with a mirror on the device (host_mirrors.h). While there are none, nothing is to be done for them.
inline std::atomic<std::size_t> coherent_regions{0};
inline std::atomic<std::size_t> mirrored_regions{0};
inline bool host_memory_is_closed() {
  return coherent_regions.load(std::memory_order_acquire) != 0;
}
inline bool host_memory_is_shared() {
  return host_memory_is_closed() || mirrored_regions.load(std::memory_order_acquire) != 0;
}

/// Before work is given to a worker's devices: they get what the host wrote. What is closed to the host then
/// stays so while `handed_over` is held, which must be until the work is posted.
using HandedOver = std::unique_lock<Mutex>;
CUresult hand_host_memory_over(WorkerLink& worker, HandedOver& handed_over);
/// When a host function has returned, before the worker hears of it.
void hand_host_memory_back(const WorkerLink& worker, HandedOver& handed_over);
/// Before memory of a worker's devices is read: they get what the host wrote.
CUresult flush_host_memory(WorkerLink& worker);
/// After one of a worker's devices has been waited for.
void take_host_memory(const WorkerLink& worker);
/// The kernel cannot read pages that are closed to the host: replaces parts that lie there.
void open_host_memory(std::vector<iovec>& parts);

}  // namespace gpupool::client
