// The end of one piece of stream work: what others wait for.
#pragma once

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
    if (!wait_awake([this] { return done(); })) done_.wait(0, std::memory_order_acquire);
  }
  void finish() {
    finished_ = Clock::now();
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }
  // Valid once done() is true.
  Clock::time_point finished() const { return finished_; }

 private:
  std::atomic<unsigned> done_{0};
  Clock::time_point finished_{};
};

using CompletionRef = std::shared_ptr<Completion>;

}  // namespace softgpu::driver
