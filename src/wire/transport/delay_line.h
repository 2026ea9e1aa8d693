// Bytes that come out as they went in, later: the delay and the bandwidth of a network, for tests and
// measurements.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <thread>

#include "base/mutex.h"
#include "wire/transport/link_quality.h"

namespace gpupool::wire {

/// One direction of a network, with a thread that delivers what comes out of it.
class DelayLine {
 public:
  /// `deliver` is called from the line's own thread; false ends the line.
  DelayLine(LinkQuality quality, std::function<bool(std::span<const std::byte>)> deliver);
  /// Everything that was put in is delivered first, unless the line was cut.
  ~DelayLine();
  DelayLine(const DelayLine&) = delete;
  DelayLine& operator=(const DelayLine&) = delete;

  /// Waits while the line is full, as a socket does. False: the line has ended.
  bool put(std::span<const std::byte> bytes);
  /// Nothing more will be put in. `then` is called, from the line's thread, when all has been delivered or
  /// the line has ended otherwise.
  void close(std::function<void()> then);
  /// Throws away what is under way and ends.
  void cut();
  /// Nothing is delivered until it resumes.
  void stall(bool stalled);
  /// In a forked child, which has no such thread.
  void abandon_after_fork() noexcept;

 private:
  using Clock = DelayedBytes::Clock;
  void run();

  std::function<bool(std::span<const std::byte>)> deliver_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<DelayedBytes> under_way_ GUARDED_BY(mutex_);
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  const std::size_t room_;
  LinkClock clock_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false, ended_ GUARDED_BY(mutex_) = false,
                stalled_ GUARDED_BY(mutex_) = false, finished_ GUARDED_BY(mutex_) = false;
  std::function<void()> then_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gpupool::wire
