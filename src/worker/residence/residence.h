// Whether the session's memory is on its devices, for all threads that speak with the driver.
//
// While memory is away the driver makes every call wait, and a thread that waits there may hold what others
// need. So each thread asks here first, and finds out instead of waiting where it can do without.
//
// States: open -> closing (close() waits for visits to end) -> closed -> open; closing -> open when they do
// not end in time. Where memory lies meanwhile is memory_place.h: it is moved only while this is closed, and
// after a failure beyond help this stays closed.
//
// 1. Between a close() that returned true and open() no visit is inside: enter() counts itself before it
//    looks at closed_, close() sets closed_ before it looks at the count, all sequentially consistent.
// 2. A visit inside a visit of the same thread never waits and never fails: depth_ is counted per thread.
// 3. A thread that leaves, or is turned away, while this is closing tells close().
// 4. A thread that speaks with the driver is inside a visit, except the thread that moves memory.
//
// Order of locks: Parking::moving (who moves) before mutex_ and before Parking::identity, which are never
// held together. mutex_ is held for nothing but waiting and telling. Nobody waits for a visit with a lock
// that somebody inside a visit takes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace gpupool::worker {

class Residence {
 public:
  Residence() = default;
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  /// While one lives that is true, memory stays on the devices. Visits of one thread may be nested. Without a
  /// residence memory is always there.
  class Visit {
   public:
    explicit Visit(Residence* residence)
        : residence_(residence), inside_(residence == nullptr || residence->enter()) {}
    ~Visit() {
      if (inside_ && residence_ != nullptr) residence_->leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const { return inside_; }

    /// Waits for the memory to come back. False when `given_up`, which is asked now and then, says so.
    [[nodiscard]] bool wait(const std::function<bool()>& given_up) {
      while (!inside_) {
        if (given_up()) return false;
        residence_->wait_a_while();
        inside_ = residence_->enter();
      }
      return true;
    }

   private:
    Residence* residence_;
    bool inside_;
  };

  /// No visits from now on, and none under way. False, and everything as before, when some have not ended
  /// within `patience`. One thread at a time moves memory.
  [[nodiscard]] bool close(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    if (changed_.wait_for(lock, patience, [this] { return inside_.load() == 0; })) return true;
    closed_ = false;
    changed_.notify_all();
    return false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  bool enter() {
    if (depth_ > 0) return ++depth_, true;  // its own visit keeps the memory where it is
    inside_.fetch_add(1);
    if (!closed_.load()) return ++depth_, true;
    inside_.fetch_sub(1);
    tell();
    return false;
  }
  void leave() {
    if (--depth_ > 0) return;
    inside_.fetch_sub(1);
    if (closed_.load()) tell();
  }
  void tell() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  void wait_a_while() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return !closed_.load(); });
  }

  static inline thread_local int depth_ = 0;  // a process has one session

  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace gpupool::worker
