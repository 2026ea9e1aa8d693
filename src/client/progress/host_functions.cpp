#include "client/progress/host_functions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/quiet_thread.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/process/session_belongings.h"
#include "client/session/attach_again.h"
#include "shared_api/error_log.h"

namespace gpupool::client {
namespace {

using Called = wire::HostFunction;

/// What one worker has to do with them.
struct OfWorker {
  std::deque<Called> called;
  bool watched = false;
  std::atomic<int> expected{0};
  std::atomic<std::uint64_t> ever_expected{0};
  std::atomic<int> work_behind{0};  ///< given since the last function was expected, or about that much
  std::atomic<int> held_back{0};    ///< messages before which no further function is launched
};

struct HostFunctions {
  Mutex mutex;
  CondVar fewer;
  std::map<std::pair<CUhostFn, void*>, std::uint64_t> tokens GUARDED_BY(mutex);
  std::map<std::uint64_t, std::pair<CUhostFn, void*>> functions GUARDED_BY(mutex);
  std::uint64_t next_once GUARDED_BY(mutex) = 1;
  /// Of each its atomics without the mutex.
  std::array<OfWorker, SessionFile::max_workers> workers;

  OfWorker& of(const WorkerLink& worker) { return workers[worker.index]; }
};
HostFunctions& host_functions() {
  static HostFunctions& all = kept_for_session<HostFunctions>([](HostFunctions& kept) {
    const MutexLock lock(kept.mutex);
    for (OfWorker& one : kept.workers) {
      one.called.clear();
      one.watched = false;
      one.expected = 0;
      one.work_behind = 0;
    }
    kept.fewer.notify_all();
  });
  return all;
}

thread_local bool running = false;

/// A worker waits for each to be done before its stream calls the next, so that more come from a liar only.
constexpr std::size_t most_called = wire::max_handles;

/// One that is over, or will never run.
void one_less(HostFunctions& all, const WorkerLink& worker) {
  std::atomic<int>& expected = all.of(worker).expected;
  int now = expected.load();
  while (now > 0 && !expected.compare_exchange_weak(now, now - 1)) {
  }
  const MutexLock lock(all.mutex);
  all.fewer.notify_all();
}

void run_and_answer(HostFunctions& all, const Called& called, const WorkerLink& worker) {
  void* data = nullptr;
  const CUhostFn function = host_function_of(called.token, data);
  if (function != nullptr) {
    running = true;
    function(data);
    running = false;
  }
  if ((called.token & wire::once_only) != 0) forget_host_function(called.token);
  messages::HostFunctionDone m;
  m.run = called.run;
  // It names nothing that is of this worker: a context of it does.
  const std::uint64_t there = runtime().several() ? primary_context(worker.first_device) : any_context;
  const CallbacksLater later;  // outlives the lock of the memory that is handed back
  HandedOver handed_over;
  if (host_memory_is_closed()) hand_host_memory_back(worker, handed_over);
  static_cast<void>(post(m, there));
  worker.connection.load()->flush();
  one_less(all, worker);
}

/// A function may be in a stream of any of them.
void wait_for_contexts_of(const WorkerLink& worker) {
  std::vector<std::uint64_t> contexts;
  tables().contexts.each([&](std::uint64_t handle, const Context& context) {
    if (&worker_of_device(context.device) == &worker) contexts.push_back(handle);
  });
  for (const std::uint64_t context : contexts) {
    messages::SynchronizeContext m;
    m.context = context;
    replies::SynchronizeContext reply;
    std::vector<std::byte> bytes;
    static_cast<void>(ask(m, reply, context, bytes));
  }
}

/// Until those that were expected when it began have run.
void wait_for_expected(const WorkerLink& worker) {
  HostFunctions& all = host_functions();
  OfWorker& mine = all.of(worker);
  if (mine.expected.load() == 0) return;
  const std::uint64_t until_now = mine.ever_expected.load();
  {
    MutexLock lock(all.mutex);
    if (all.fewer.wait_for(all.mutex, std::chrono::seconds(1),
                           [&]() REQUIRES(all.mutex) { return mine.expected.load() == 0; }))
      return;
  }
  // Slow ones are waited for with everything else; after an error of the context they are never called.
  wait_for_contexts_of(worker);
  // Those that other threads have given meanwhile may still run.
  const auto later = static_cast<int>(mine.ever_expected.load() - until_now);
  int now = mine.expected.load();
  while (now > later && !mine.expected.compare_exchange_weak(now, later)) {
  }
}

void watch(const WorkerLink& worker) {
  never_wait_for_lease();
  HostFunctions& all = host_functions();
  OfWorker& mine = all.of(worker);
  const auto is_called = [&] {
    const MutexLock lock(all.mutex);
    return !mine.called.empty();
  };
  Connection* const connection = worker.connection.load();
  while (connection->read_until(is_called)) {
    Called next{};
    {
      const MutexLock lock(all.mutex);
      if (mine.called.empty()) continue;
      next = mine.called.front();
      mine.called.pop_front();
    }
    run_and_answer(all, next, worker);
  }
  if (worker.connection.load() != connection) return;  // another session has begun
  mine.expected = 0;                                   // the connection is gone: none of them will be called
  const MutexLock lock(all.mutex);
  all.fewer.notify_all();
}

}  // namespace

std::uint64_t host_function_once(CUhostFn function, void* data) {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  const std::uint64_t token = wire::once_only | all.next_once++;
  all.functions[token] = {function, data};
  return token;
}

void forget_host_function(std::uint64_t once) {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  all.functions.erase(once);
}

std::uint64_t host_function_token(CUhostFn function, void* data) {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  auto& token = all.tokens[{function, data}];
  if (token == 0) {
    token = all.tokens.size();
    all.functions[token] = {function, data};
  }
  return token;
}

CUhostFn host_function_of(std::uint64_t token, void*& data) {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  const auto found = all.functions.find(token);
  if (found == all.functions.end()) return nullptr;
  data = found->second.second;
  return found->second.first;
}

void watch_host_functions(WorkerLink& worker) {
  HostFunctions& all = host_functions();
  {
    const MutexLock lock(all.mutex);
    if (std::exchange(all.of(worker).watched, true)) return;
  }
  try {
    quiet_thread([&worker] { watch(worker); }).detach();
  } catch (...) {
    const MutexLock lock(all.mutex);
    all.of(worker).watched = false;
    throw;
  }
}

bool host_functions_are_used() {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  return std::any_of(all.workers.begin(), all.workers.end(), [](const OfWorker& one) { return one.watched; });
}

bool host_function_called(const wire::HostFunction& called, const WorkerLink& worker) {
  HostFunctions& all = host_functions();
  const MutexLock lock(all.mutex);
  std::deque<Called>& waiting = all.of(worker).called;
  if (!all.functions.contains(called.token) || waiting.size() >= most_called) return false;
  waiting.push_back(called);
  return true;
}

bool in_host_function() {
  return running;
}

void expect_host_functions(const WorkerLink& worker, int count) {
  OfWorker& mine = host_functions().of(worker);
  mine.ever_expected +=
      static_cast<unsigned>(count);  // first: those that are seen as expected are among these
  if (mine.expected.fetch_add(count) == 0) mine.work_behind = 0;
}

void limit_work_behind_host_functions(const WorkerLink& worker) {
  constexpr int most = 256;
  OfWorker& mine = host_functions().of(worker);
  if (mine.expected.load() == 0) return;
  if (++mine.work_behind <= most) return;
  wait_for_expected(worker);
  mine.work_behind = 0;
}

void HoldsUp::wait() {
  if (++waits_ == 2) ++host_functions().of(worker_).held_back;
  wait_for_expected(worker_);
}

void HoldsUp::check() const {
  if (host_functions().of(worker_).expected.load() != 0) throw TooEarly{};
}

HoldsUp::~HoldsUp() {
  if (waits_ < 2) return;
  HostFunctions& all = host_functions();
  --all.of(worker_).held_back;
  const MutexLock lock(all.mutex);
  all.fewer.notify_all();
}

void let_held_up_go_first(const WorkerLink& worker) {
  HostFunctions& all = host_functions();
  OfWorker& mine = all.of(worker);
  if (mine.held_back.load() == 0) return;
  MutexLock lock(all.mutex);
  all.fewer.wait(all.mutex, [&]() REQUIRES(all.mutex) { return mine.held_back.load() == 0; });
}

}  // namespace gpupool::client
