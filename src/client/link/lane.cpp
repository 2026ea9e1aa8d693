#include "client/link/lane.h"

#include <algorithm>
#include <functional>
#include <new>
#include <vector>

#include "base/mutex.h"

namespace gpupool::client {
namespace {

class LaneNumbers {
 public:
  std::uint32_t take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) return ++last_;
    // The lowest: few numbers stay in use, however many threads come and go.
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const std::uint32_t lane = free_.back();
    free_.pop_back();
    return lane;
  }
  void give_back(std::uint32_t lane) noexcept try {
    const MutexLock lock(mutex_);
    free_.push_back(lane);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  } catch (const std::bad_alloc&) {  // the number is not used again
  }

 private:
  Mutex mutex_;
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  std::uint32_t last_ GUARDED_BY(mutex_) = 0;
};

LaneNumbers& numbers() {
  static LaneNumbers* const all = new LaneNumbers;
  return *all;
}

// Two objects: the number can still be read while the thread's destructors run.
thread_local std::uint32_t number = 0;
thread_local bool ended = false;

struct Owner {
  ~Owner() {
    ended = true;
    const std::uint32_t mine = number;
    number = 0;
    numbers().give_back(mine);
  }
};

}  // namespace

std::uint32_t lane_of_this_thread() {
  if (number != 0 || ended) return number;
  static thread_local Owner owner;
  static_cast<void>(owner);
  return number = numbers().take();
}

}  // namespace gpupool::client
