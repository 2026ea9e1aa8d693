#include "worker/conversation/lane_pool.h"

#include <sys/prctl.h>

#include <chrono>
#include <system_error>

namespace gpupool::worker {
namespace {
constexpr auto idle_life = std::chrono::seconds(10);
}

LanePool::~LanePool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Lane& lane : lanes_) lane.wakes.notify_one();
  }
  for (Lane& lane : lanes_) lane.thread.join();
}

bool LanePool::run(std::function<void()>& task) {
  const std::lock_guard lock(mutex_);
  Lane* taken = nullptr;
  for (Lane& lane : lanes_) {
    if (!lane.busy && !lane.ended) taken = &lane;  // the one used last is the likeliest to be awake
  }
  if (taken == nullptr) taken = start_lane();
  if (taken == nullptr) return queue(task);
  taken->task = std::move(task);
  taken->busy = true;
  ++active_;
  taken->wakes.notify_one();
  return true;
}

LanePool::Lane* LanePool::start_lane() {
  remove_ended();
  if (lanes_.size() >= max_threads) return nullptr;
  Lane* const made = &lanes_.emplace_back();
  try {
    made->thread = std::thread([this, made] { serve(*made); });
    return made;
  } catch (const std::system_error&) {
    lanes_.pop_back();
    return nullptr;
  }
}

/// All threads are busy, so one of them comes to it.
bool LanePool::queue(std::function<void()>& task) {
  if (lanes_.empty() || queued_.size() >= most_queued) return false;
  queued_.push_back(std::move(task));
  ++active_;
  return true;
}

std::size_t LanePool::active() {
  const std::lock_guard lock(mutex_);
  return active_;
}

void LanePool::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return active_ == 0; });
}

void LanePool::serve(Lane& lane) {
  prctl(PR_SET_NAME, "gpupool-lane");
  std::unique_lock lock(mutex_);
  while (lane.wakes.wait_for(lock, idle_life, [&] { return lane.busy || stopping_; })) {
    if (!lane.busy) break;
    std::function<void()> task = std::move(lane.task);
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    lane.busy = false;
    if (--active_ == 0) idle_.notify_all();
    if (queued_.empty()) continue;
    lane.task = std::move(queued_.front());
    queued_.pop_front();
    lane.busy = true;
  }
  lane.ended = true;
}

void LanePool::remove_ended() {
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    if (!lane->ended) {
      ++lane;
      continue;
    }
    lane->thread.join();  // it has nothing left to do but to release the mutex that is held here
    lane = lanes_.erase(lane);
  }
}

}  // namespace gpupool::worker
