// Driver objects that a call on another thread still needs.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace gpupool::worker {

/// Thread-safe. A program that destroys what another of its threads waits for is in error, but must not harm
/// the worker: destruction waits for the call to return.
class ObjectsInUse {
 public:
  void add(const std::vector<const void*>& objects) {
    if (objects.empty()) return;
    const std::lock_guard lock(mutex_);
    objects_.insert(objects_.end(), objects.begin(), objects.end());
  }
  void remove(const std::vector<const void*>& objects) {
    if (objects.empty()) return;
    const std::lock_guard lock(mutex_);
    for (const void* const object : objects) {
      const auto found = std::find(objects_.begin(), objects_.end(), object);
      if (found != objects_.end()) objects_.erase(found);
    }
    changed_.notify_all();
  }
  void wait_unused(const void* object) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return std::find(objects_.begin(), objects_.end(), object) == objects_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> objects_;  // as often as it is used
};

}  // namespace gpupool::worker
