// What is done once in a process. Unlike std::call_once it may throw, and is tried again then: libc's
// pthread_once does not let an exception of a library through that has a C++ runtime of its own.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace gpupool {

class Once {
 public:
  template <class Body>
  void run(Body&& body) {
    if (done_.load(std::memory_order_acquire)) return;
    const MutexLock lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    std::forward<Body>(body)();
    done_.store(true, std::memory_order_release);
  }

 private:
  Mutex mutex_;
  std::atomic<bool> done_{false};
};

}  // namespace gpupool
