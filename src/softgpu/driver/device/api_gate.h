// The gate every API call passes. A process checkpoint closes it: calls that are inside finish, later ones
// wait.
//
// Not a mutex, because the thread that opens it need not be the one that closed it.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "base/mutex.h"

namespace softgpu::driver {

class ApiGate {
 public:
  void enter() {
    for (;;) {
      inside_.fetch_add(1);
      if (!closed_.load()) return;
      leave();
      gpupool::MutexLock lock(mutex_);
      changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return !closed_.load(); });
    }
  }

  void leave() {
    if (inside_.fetch_sub(1) == 1 && closed_.load()) {
      const gpupool::MutexLock lock(mutex_);
      changed_.notify_all();
    }
  }

  // False (and open as before) if calls are still inside when the time is over. Without a timeout it waits.
  bool close(std::optional<std::chrono::milliseconds> timeout) {
    gpupool::MutexLock lock(mutex_);
    closed_ = true;
    const auto empty = [this] { return inside_.load() == 0; };
    if (!timeout) {
      changed_.wait(mutex_, empty);
    } else if (!changed_.wait_for(mutex_, *timeout, empty)) {
      closed_ = false;
      changed_.notify_all();
      return false;
    }
    return true;
  }

  void open() {
    const gpupool::MutexLock lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
  gpupool::Mutex mutex_;
  gpupool::CondVar changed_;
};

// One API call's passage.
class InsideGate {
 public:
  explicit InsideGate(ApiGate& gate) : gate_(gate) { gate_.enter(); }
  ~InsideGate() { gate_.leave(); }
  InsideGate(const InsideGate&) = delete;
  InsideGate& operator=(const InsideGate&) = delete;

 private:
  ApiGate& gate_;
};

}  // namespace softgpu::driver
