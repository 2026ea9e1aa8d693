// All kernels of the process stand still between two instructions, and go on later as if nothing had been.
//
// 1. While `on()`, and after begin() has returned, no thread is between enter() and leave().
// 2. A thread that executes instructions leaves after a slice of them, some milliseconds at most; so does
//    begin(), whose caller waits for that.
// 3. device_now() does not advance from then on until end(): what stands still takes no device time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "base/mutex.h"

namespace softgpu {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  /// The one of this process, never destroyed: streams work until the very end.
  static Standstill& of_process();

  /// Returns when everything stands. Idempotent.
  void begin();
  void end();
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Before instructions are executed; waits while everything has to stand. False, and nothing to leave: what
  /// the caller works for was given up meanwhile.
  [[nodiscard]] bool enter(const std::function<bool()>& given_up) {
    running_.fetch_add(1, std::memory_order_seq_cst);
    if (!on_.load(std::memory_order_seq_cst)) return true;
    return wait_to_enter(given_up);
  }
  void leave() {
    if (running_.fetch_sub(1, std::memory_order_seq_cst) == 1 && on_.load(std::memory_order_seq_cst)) tell();
  }
  /// Waits while everything has to stand, without entering: before a piece of work that cannot be divided.
  void pass(const std::function<bool()>& given_up);

  /// The time without what was spent standing still.
  [[nodiscard]] Clock::time_point device_now() const;

 private:
  bool wait_to_enter(const std::function<bool()>& given_up);
  bool wait_for_end(const std::function<bool()>& given_up);
  void tell();

  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<bool> on_{false};
  std::atomic<Clock::rep> stood_{0};  // in all, until now or the last begin()

  mutable gpupool::Mutex mutex_;
  gpupool::CondVar changed_;
  bool stands_ GUARDED_BY(mutex_) = false;  // since `since_`
  Clock::time_point since_ GUARDED_BY(mutex_){};
};

/// Standstill::device_now of this process.
[[nodiscard]] inline Standstill::Clock::time_point device_now() {
  return Standstill::of_process().device_now();
}

}  // namespace softgpu
