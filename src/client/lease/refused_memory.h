// The last allocation that a share had no room for, with the figures that explain it.
//
// Programs probe: they ask, are refused, free what they cache and ask again. So nothing is written to
// standard error when a call is refused. The record stands until an allocation of at least that size succeeds
// on the device, and whoever holds the share tells what is left of it: below the cell, at the end of `gpupool
// run`.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.h"

namespace gpupool::client {

/// Bytes, of one device of the process.
struct RefusedMemory {
  int device = 0;
  std::uint64_t asked = 0;
  std::uint64_t share = 0;
  std::uint64_t used = 0;
  std::uint64_t largest_free = 0;  ///< what could be had at once; fragments make it less than share - used
  std::uint64_t needed = 0;        ///< a share of this size would have room
  bool operator==(const RefusedMemory&) const = default;

  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string sentence() const;
};

/// Bytes for people: 1536 -> "1.5 KiB".
std::string amount(std::uint64_t bytes);

/// Thread-safe.
class RefusedMemoryRecord {
 public:
  /// Keeps it, as the thread's last message, in the error log, and in the file beside the session file.
  void keep(const RefusedMemory& refused);
  /// So many bytes were to be had on the device.
  void served(int device, std::uint64_t bytes) {
    if (asked_.load(std::memory_order_relaxed) == 0 || bytes < asked_.load(std::memory_order_relaxed)) return;
    forget(device, bytes);
  }
  void clear();
  [[nodiscard]] std::optional<RefusedMemory> last();

 private:
  void forget(int device, std::uint64_t bytes);
  void drop() REQUIRES(mutex_);

  std::atomic<std::uint64_t> asked_{0};  // of last_, 0: there is none
  Mutex mutex_;
  std::optional<RefusedMemory> last_ GUARDED_BY(mutex_);
  std::uint64_t logged_at_ns_ GUARDED_BY(mutex_) = 0;
};

/// One per process, never destroyed.
RefusedMemoryRecord& refused_memory();

/// While it lives, this thread's refusals are not kept: what asks has another way.
class RefusalIsNoMatter {
 public:
  RefusalIsNoMatter();
  ~RefusalIsNoMatter();
  RefusalIsNoMatter(const RefusalIsNoMatter&) = delete;
  RefusalIsNoMatter& operator=(const RefusalIsNoMatter&) = delete;
};

/// What a call was refused for that no larger share would have helped.
void remember_refusal(const std::string& text);

}  // namespace gpupool::client
