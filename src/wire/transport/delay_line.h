// Bytes that come out as they went in, later: the delay and the bandwidth of a network, for tests and
// measurements.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace gpupool::wire {

/// One direction of a network. No limit: 0.
struct LinkQuality {
  std::chrono::microseconds delay{0};
  std::uint64_t mbit = 0;

  /// `delay_us=250,mbit=1000`, each part may be missing. Empty and `error` for other text.
  static std::optional<LinkQuality> parse(std::string_view text, std::string& error);
};

/// The delay belongs to each byte and not to each call: what is put in while other bytes are under way
/// follows them as closely as the bandwidth allows.
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
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t piece = 16 << 10;
  static constexpr std::size_t buffers = 4 << 20;  // of the sockets at both ends

  struct Piece {
    Clock::time_point due;
    std::vector<std::byte> bytes;
  };
  void run();

  LinkQuality quality_;
  std::function<bool(std::span<const std::byte>)> deliver_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Piece> under_way_ GUARDED_BY(mutex_);
  std::size_t bytes_ GUARDED_BY(mutex_) = 0, room_ GUARDED_BY(mutex_);
  Clock::time_point free_at_ GUARDED_BY(mutex_){};  // when the link has sent all that was put in
  bool closing_ GUARDED_BY(mutex_) = false, ended_ GUARDED_BY(mutex_) = false,
                stalled_ GUARDED_BY(mutex_) = false, finished_ GUARDED_BY(mutex_) = false;
  std::function<void()> then_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gpupool::wire
