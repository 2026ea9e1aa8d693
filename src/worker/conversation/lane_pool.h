// Threads for calls that wait for the device, so that the calls of other lanes go on meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace gpupool::worker {

/// A client thread has at most one call that waits, so a thread per such call is a thread per lane. What
/// finds no thread is taken by the next one that is free: its end may be a later frame, so the caller must
/// not wait. No client has so many threads that the queue is full: then the caller executes the task, in
/// order.
class LanePool {
 public:
  static constexpr std::size_t max_threads = 64;
  static constexpr std::size_t most_queued = 1u << 14;

  LanePool() = default;
  ~LanePool();
  LanePool(const LanePool&) = delete;
  LanePool& operator=(const LanePool&) = delete;

  /// Runs `task` on another thread. False, and nothing done, when there is none and when too many wait for
  /// one.
  bool run(std::function<void()>& task);
  /// Tasks that have been given and have not returned.
  [[nodiscard]] std::size_t active();
  /// Until no task is active.
  void wait_idle();

 private:
  struct Lane {
    std::thread thread;
    std::condition_variable wakes;
    std::function<void()> task;
    bool busy = false;
    bool ended = false;  ///< the thread is to be joined
  };

  /// A new thread; null when there can be none. Precondition of these three: mutex_ held.
  Lane* start_lane();
  [[nodiscard]] bool queue(std::function<void()>& task);
  void remove_ended();

  void serve(Lane& lane);

  std::mutex mutex_;  // protects all members
  std::condition_variable idle_;
  std::list<Lane> lanes_;
  std::deque<std::function<void()>> queued_;
  std::size_t active_ = 0;
  bool stopping_ = false;
};

}  // namespace gpupool::worker
