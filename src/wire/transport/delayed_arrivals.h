// The receiving end of an emulated network: bytes that have come may be read when they are due.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "wire/transport/link_quality.h"

namespace gpupool::wire {

/// Nobody delivers them: whoever reads waits for the time itself, and isn't woken by another thread then.
class DelayedArrivals {
 public:
  explicit DelayedArrivals(LinkQuality quality) : room_(quality.room()), clock_(quality) {}

  /// Waits while too many bytes have not been read. False: the end was cut off.
  bool put(std::span<const std::byte> bytes);
  /// Nothing more comes.
  void close();
  /// Throws away what has not been read.
  void cut();

  /// As Stream's.
  std::size_t take(void* into, std::size_t room);
  bool readable(int timeout_ms);
  bool holds_unread();

 private:
  using Clock = DelayedBytes::Clock;
  // Until the first byte is due, the end is there, or that time is over.
  void wait(std::optional<Clock::time_point> latest) REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<DelayedBytes> arrived_ GUARDED_BY(mutex_);
  std::size_t taken_ GUARDED_BY(mutex_) = 0;  // of the first
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  const std::size_t room_;
  LinkClock clock_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpupool::wire
