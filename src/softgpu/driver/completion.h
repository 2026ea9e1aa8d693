// The end of one piece of stream work: what others wait for.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "softgpu/exec/wait_awake.h"

namespace softgpu::driver {

class Completion {
 public:
  using Clock = std::chrono::steady_clock;

  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const {
    // Longer work may want this core too.
    static thread_local WaitAwake wait_awake(std::chrono::microseconds(10));
    const int core = core_.load(std::memory_order_relaxed);
    const bool elsewhere = core != kNotBegun && core != sched_getcpu();
    if (elsewhere && wait_awake([this] { return done(); })) return;
    done_.wait(0, std::memory_order_acquire);
  }
  // By the thread that does the work.
  void begin() { core_.store(sched_getcpu(), std::memory_order_relaxed); }
  void finish() {
    finished_ = Clock::now();
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }
  // Valid once done() is true.
  Clock::time_point finished() const { return finished_; }

 private:
  static constexpr int kNotBegun = -1;

  std::atomic<unsigned> done_{0};
  std::atomic<int> core_{kNotBegun};  // where the work is done
  Clock::time_point finished_{};
};

using CompletionRef = std::shared_ptr<Completion>;

}  // namespace softgpu::driver
