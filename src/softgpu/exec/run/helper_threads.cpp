#include "softgpu/exec/run/helper_threads.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/patience.h"

namespace softgpu {
namespace {

// A program that waits for each launch takes 30 to 70 us to the next one.
constexpr std::chrono::microseconds wait_between_launches(120);
constexpr std::chrono::microseconds wait_for_the_last(50);
// From a launch to the wait for it, in Python.
constexpr std::chrono::microseconds launch_to_wait(10);

}  // namespace

struct HelperThreads::State {
  struct Job {
    const std::function<void(uint32_t)>& part;
    const unsigned helpers;
    const std::thread::id owner = std::this_thread::get_id();
    uint32_t joined = 0;
    std::atomic<uint32_t> working{0};  // written under the mutex
  };

  gpupool::Mutex mutex;
  gpupool::CondVar work, left;
  std::deque<Job*> jobs GUARDED_BY(mutex);
  std::vector<std::function<void()>> calls GUARDED_BY(mutex);  // to be made in a moment
  unsigned awake GUARDED_BY(mutex) = 0;                        // helpers that look for something to do
  bool stopping GUARDED_BY(mutex) = false;
  std::atomic<bool> wanted{false}, called{false};  // there are jobs, or calls; written under the mutex
  std::vector<std::thread> threads;                // constant once they run

  void add(Job& job) {
    const gpupool::MutexLock lock(mutex);
    jobs.push_back(&job);
    wanted = true;
  }
  void remove(Job& job) REQUIRES(mutex) {
    std::erase(jobs, &job);
    wanted = !jobs.empty();
  }

  void serve(std::chrono::microseconds awake_for) {
    gpupool::Patience patience(awake_for), moment(launch_to_wait);
    gpupool::MutexLock lock(mutex);
    for (;;) {
      ++awake;
      lock.unlock();
      patience.spin([this] { return is_set(wanted) || is_set(called); });
      lock.lock();
      --awake;
      work.wait(mutex, [this]() REQUIRES(mutex) { return stopping || !jobs.empty() || !calls.empty(); });
      if (!calls.empty()) make_calls(moment);
      if (stopping) return;
      if (!jobs.empty()) join(*jobs.front());
    }
  }
  void make_calls(gpupool::Patience& moment) REQUIRES(mutex) {
    const auto taken = std::exchange(calls, {});
    called = false;
    const gpupool::MutexUnlock unlocked(mutex);
    moment.spin([this] { return is_set(wanted); });
    for (const auto& call : taken) call();
  }
  static bool is_set(const std::atomic<bool>& flag) { return flag.load(std::memory_order_relaxed); }
  void join(Job& job) REQUIRES(mutex) {
    const uint32_t number = ++job.joined;
    ++job.working;
    if (job.joined == job.helpers) remove(job);
    {
      const gpupool::MutexUnlock unlocked(mutex);
      job.part(number);
    }
    if (--job.working == 0) left.notify_all();
  }
};

HelperThreads::HelperThreads(unsigned count) : HelperThreads(count, wait_between_launches) {}

HelperThreads::HelperThreads(unsigned count, std::chrono::microseconds awake)
    : state_(std::make_unique<State>()) {
  for (unsigned i = 0; i < count; ++i) {
    state_->threads.emplace_back([this, awake] { state_->serve(awake); });
  }
}

HelperThreads::~HelperThreads() {
  {
    const gpupool::MutexLock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

unsigned HelperThreads::count() const {
  return static_cast<unsigned>(state_->threads.size());
}

bool HelperThreads::wanted() const {
  return State::is_set(state_->wanted);
}

bool HelperThreads::in_a_moment(std::function<void()> call) {
  const gpupool::MutexLock lock(state_->mutex);
  if (state_->awake == 0) return false;
  state_->calls.push_back(std::move(call));
  state_->called = true;
  return true;
}

bool HelperThreads::help(std::thread::id owner) {
  gpupool::MutexLock lock(state_->mutex);
  const auto job =
      std::ranges::find_if(state_->jobs, [owner](const State::Job* job) { return job->owner == owner; });
  if (job == state_->jobs.end()) return false;
  state_->join(**job);
  return true;
}

void HelperThreads::share(unsigned helpers, const std::function<void(uint32_t)>& part) {
  helpers = std::min(helpers, count());
  if (helpers == 0) return part(0);
  State::Job job{part, helpers};
  state_->add(job);
  if (helpers == 1) {
    state_->work.notify_one();
  } else {
    state_->work.notify_all();
  }
  part(0);
  static thread_local gpupool::Patience patience(wait_for_the_last);
  patience.spin([&job] { return job.working == 0; });
  gpupool::MutexLock lock(state_->mutex);
  state_->remove(job);  // nobody joins any more
  state_->left.wait(state_->mutex, [&job] { return job.working == 0; });
}

}  // namespace softgpu
