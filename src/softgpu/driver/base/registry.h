// Live handles of one kind. A handle is the object's address; a number that is not registered is refused
// instead of being followed, so a program's wild or stale handle gets an error and not a crash.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"

namespace softgpu::driver {

template <class Object>
class Registry {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    const gpupool::MutexLock lock(mutex_);
    auto* key = object.get();
    objects_.emplace(key, std::move(object));
    return reinterpret_cast<Handle>(key);
  }

  // Null if the handle is not live.
  std::shared_ptr<Object> find(const void* handle) const {
    const gpupool::MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> get(const void* handle, CUresult otherwise = CUDA_ERROR_INVALID_HANDLE) const {
    auto object = find(handle);
    require(object != nullptr, otherwise);
    return object;
  }

  // The object whose handle ends now.
  std::shared_ptr<Object> take(const void* handle, CUresult otherwise = CUDA_ERROR_INVALID_HANDLE) {
    const gpupool::MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    require(found != objects_.end(), otherwise);
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Ends all handles for which `chosen` is true.
  template <class Predicate>
  std::vector<std::shared_ptr<Object>> take_if(Predicate chosen) {
    const gpupool::MutexLock lock(mutex_);
    std::vector<std::shared_ptr<Object>> taken;
    for (auto entry = objects_.begin(); entry != objects_.end();) {
      if (chosen(*entry->second)) {
        taken.push_back(std::move(entry->second));
        entry = objects_.erase(entry);
      } else {
        ++entry;
      }
    }
    return taken;
  }

  template <class Action>
  void for_each(Action action) const {
    const gpupool::MutexLock lock(mutex_);
    for (const auto& [key, object] : objects_) action(*object);
  }

 private:
  mutable gpupool::Mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_ GUARDED_BY(mutex_);
};

// All handles of a class of objects: registry<Stream>(). Made by its first use and never destroyed, so that
// calls and threads during process exit find it.
template <class Object>
Registry<Object>& registry() {
  static auto* const made = new Registry<Object>;
  return *made;
}

}  // namespace softgpu::driver
