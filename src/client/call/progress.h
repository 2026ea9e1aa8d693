// What this process knows about how far the device has come, without asking.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpupool::client {

/// The number of a frame, which only grows. Thread-safe.
class FrameMark {
 public:
  FrameMark() = default;
  explicit FrameMark(std::uint64_t value) : value_(value) {}
  FrameMark(const FrameMark& other) : value_(other.get()) {}
  FrameMark& operator=(const FrameMark& other) {
    value_.store(other.get(), std::memory_order_relaxed);
    return *this;
  }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_acquire); }
  void raise(std::uint64_t to) {
    std::uint64_t now = value_.load(std::memory_order_relaxed);
    while (now < to && !value_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
    }
  }
  /// Sets it and returns what it was.
  std::uint64_t exchange(std::uint64_t to) { return value_.exchange(to, std::memory_order_acq_rel); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Of a stream or an event.
struct Progress {
  FrameMark given;    ///< last frame that gave it something to do
  FrameMark done;     ///< what came up to this frame is complete
  FrameMark failed;   ///< up to this frame it had come to an error,
  FrameMark error;    ///< this one (a CUresult)
  FrameMark asked;    ///< the last wait (note_wait) after which the device was asked about it
  FrameMark watched;  ///< 1 while the worker is to tell of its completion and has not told
};

}  // namespace gpupool::client
