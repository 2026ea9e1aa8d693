// A mutex of which clang knows what it guards: `-Wthread-safety` refuses a use of a GUARDED_BY member without
// its mutex. Those of the C++ library say nothing to it. Other compilers see plain std::mutex.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#ifdef __clang__
#define GPUPOOL_ANALYSED(x) __attribute__((x))
#else
#define GPUPOOL_ANALYSED(x)
#endif
#define GUARDED_BY(mutex) GPUPOOL_ANALYSED(guarded_by(mutex))
#define REQUIRES(...) GPUPOOL_ANALYSED(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GPUPOOL_ANALYSED(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) GPUPOOL_ANALYSED(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GPUPOOL_ANALYSED(release_capability(__VA_ARGS__))
#define NOT_ANALYSED GPUPOOL_ANALYSED(no_thread_safety_analysis)

namespace gpupool {

class GPUPOOL_ANALYSED(capability("mutex")) Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() GPUPOOL_ANALYSED(try_acquire_capability(true)) { return mutex_.try_lock(); }
  /// Tells the analysis what it cannot see: that this thread has locked it.
  void assert_held() const GPUPOOL_ANALYSED(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Holds a mutex for a scope; may give it up and take it again meanwhile.
class GPUPOOL_ANALYSED(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex) {}
  /// Takes over a mutex that the caller has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t taken) REQUIRES(mutex) : lock_(mutex, taken) {}
  ~MutexLock() RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() ACQUIRE() { lock_.lock(); }
  void unlock() RELEASE() { lock_.unlock(); }

 private:
  std::unique_lock<Mutex> lock_;
};

/// Gives a mutex up that the caller holds, for a scope.
class GPUPOOL_ANALYSED(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() NOT_ANALYSED { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits give the mutex up and hold it again when they return. A predicate is a lambda that says
/// `[this]() REQUIRES(mutex_) { ... }`.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  void wait(Mutex& mutex) REQUIRES(mutex) {
    Held held(mutex);
    changed_.wait(held.lock);
  }
  template <class Predicate>
  void wait(Mutex& mutex, Predicate predicate) REQUIRES(mutex) NOT_ANALYSED {
    while (!predicate()) wait(mutex);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end)
      REQUIRES(mutex) {
    Held held(mutex);
    return changed_.wait_until(held.lock, end);
  }
  template <class Clock, class Duration, class Predicate>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end, Predicate predicate)
      REQUIRES(mutex) NOT_ANALYSED {
    while (!predicate()) {
      if (wait_until(mutex, end) == std::cv_status::timeout) return predicate();
    }
    return true;
  }
  template <class Rep, class Period>
  std::cv_status wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& time) REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& time, Predicate predicate)
      REQUIRES(mutex) NOT_ANALYSED {
    return wait_until(mutex, std::chrono::steady_clock::now() + time, std::move(predicate));
  }

 private:
  /// The lock that the C++ library wants, while the mutex stays the caller's.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace gpupool
