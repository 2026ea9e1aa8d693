// Threads for calls that wait for the device, so that the calls of other lanes go on meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace gpupool::worker {

/// A client thread has at most one call that waits, so a thread per such call is a thread per lane. There is
/// no queue: what finds no thread is executed by the caller, in order.
class LanePool {
 public:
  static constexpr std::size_t max_threads = 64;

  LanePool() = default;
  ~LanePool();
  LanePool(const LanePool&) = delete;
  LanePool& operator=(const LanePool&) = delete;

  /// Runs `task` on a thread of its own. False, and nothing done, when all are taken.
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

  void serve(Lane& lane);
  void remove_ended();  // precondition: mutex_ held

  std::mutex mutex_;  // protects all members
  std::condition_variable idle_;
  std::list<Lane> lanes_;
  std::size_t active_ = 0;
  bool stopping_ = false;
};

}  // namespace gpupool::worker
