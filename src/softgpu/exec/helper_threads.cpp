#include "softgpu/exec/helper_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "softgpu/exec/wait_awake.h"

namespace softgpu {
namespace {

// With more, Linux finds a core for each.
constexpr std::size_t kFewHelpers = 3;

}  // namespace

struct HelperThreads::State {
  // Linux may wake a thread on the core of the one that wakes it, because another that is about to fall idle
  // is busy at that moment, and leaves both there for milliseconds, longer than most kernels last.
  struct Helper {
    std::thread thread;
    int away_from = -1;  // a core

    void stay_away_from(int core) {
      if (away_from == core) return;
      cpu_set_t cores;
      // Of the calling thread: the helper's own set is without a core since the last time.
      if (sched_getaffinity(0, sizeof cores, &cores) != 0) return;
      CPU_CLR(core, &cores);
      if (CPU_COUNT(&cores) == 0) return;
      pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores);
      away_from = core;
    }
  };

  struct Job {
    const std::function<void(uint32_t)>& part;
    const unsigned helpers;
    uint32_t joined = 0;
    std::atomic<uint32_t> working{0};  // written under the mutex
  };

  std::mutex mutex;
  std::condition_variable work, left;
  std::deque<Job*> jobs;
  bool stopping = false;
  std::atomic<bool> wanted{false};  // there are jobs; written under the mutex
  std::vector<Helper> threads;      // where each may run: under the mutex

  void add(Job& job) {
    const std::lock_guard lock(mutex);
    if (threads.size() <= kFewHelpers) {
      const int core = sched_getcpu();
      for (Helper& helper : threads) helper.stay_away_from(core);
    }
    jobs.push_back(&job);
    wanted = true;
  }
  // Under the mutex.
  void remove(Job& job) {
    std::erase(jobs, &job);
    wanted = !jobs.empty();
  }

  void serve() {
    WaitAwake wait_awake;
    for (;;) {
      wait_awake([this] { return wanted.load(std::memory_order_relaxed); });
      std::unique_lock lock(mutex);
      work.wait(lock, [this] { return stopping || !jobs.empty(); });
      if (stopping) return;
      Job& job = *jobs.front();
      const uint32_t number = ++job.joined;
      ++job.working;
      if (job.joined == job.helpers) remove(job);
      lock.unlock();
      job.part(number);
      lock.lock();
      if (--job.working == 0) left.notify_all();
    }
  }
};

HelperThreads::HelperThreads(unsigned count) : state_(std::make_unique<State>()) {
  for (unsigned i = 0; i < count; ++i) state_->threads.push_back({std::thread([this] { state_->serve(); })});
}

HelperThreads::~HelperThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  for (State::Helper& helper : state_->threads) helper.thread.join();
}

unsigned HelperThreads::count() const {
  return static_cast<unsigned>(state_->threads.size());
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
  static thread_local WaitAwake wait_awake;
  wait_awake([&job] { return job.working == 0; });
  std::unique_lock lock(state_->mutex);
  state_->remove(job);  // nobody joins any more
  state_->left.wait(lock, [&job] { return job.working == 0; });
}

}  // namespace softgpu
