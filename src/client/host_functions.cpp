#include "client/host_functions.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "client/attach_again.h"
#include "client/call.h"

namespace gpupool::client {
namespace {

struct Called {
  std::uint64_t token, run;
};

struct HostFunctions {
  std::mutex mutex;
  std::condition_variable fewer;
  std::map<std::pair<CUhostFn, void*>, std::uint64_t> tokens;
  std::map<std::uint64_t, std::pair<CUhostFn, void*>> functions;
  std::uint64_t next_once = 1;
  std::deque<Called> called;
  bool watched = false;
  std::atomic<int> expected{0};
  std::atomic<int> work_behind{0};  ///< given since the last function was expected, or about that much
};
HostFunctions& host_functions() {
  static HostFunctions& all = *new HostFunctions;
  return all;
}

thread_local bool running = false;

/// A worker waits for each to be done before its stream calls the next, so that more come from a liar only.
constexpr std::size_t most_called = wire::max_handles;

/// One that is over, or will never run.
void one_less(HostFunctions& all) {
  int now = all.expected.load();
  while (now > 0 && !all.expected.compare_exchange_weak(now, now - 1)) {
  }
  const std::lock_guard lock(all.mutex);
  all.fewer.notify_all();
}

void run_and_answer(HostFunctions& all, const Called& called) {
  void* data = nullptr;
  const CUhostFn function = host_function_of(called.token, data);
  if (function != nullptr) {
    running = true;
    function(data);
    running = false;
  }
  if ((called.token & wire::once_only) != 0) {
    const std::lock_guard lock(all.mutex);
    all.functions.erase(called.token);
  }
  messages::HostFunctionDone m;
  m.run = called.run;
  static_cast<void>(post(m, any_context));
  runtime().connection().flush();
  one_less(all);
}

void watch() {
  never_attach_again();
  HostFunctions& all = host_functions();
  const auto is_called = [&] {
    const std::lock_guard lock(all.mutex);
    return !all.called.empty();
  };
  while (runtime().connection().read_until(is_called)) {
    Called next{};
    {
      const std::lock_guard lock(all.mutex);
      if (all.called.empty()) continue;
      next = all.called.front();
      all.called.pop_front();
    }
    run_and_answer(all, next);
  }
  all.expected = 0;  // the connection is gone: none of them will be called
  const std::lock_guard lock(all.mutex);
  all.fewer.notify_all();
}

}  // namespace

std::uint64_t host_function_once(CUhostFn function, void* data) {
  HostFunctions& all = host_functions();
  const std::lock_guard lock(all.mutex);
  const std::uint64_t token = wire::once_only | all.next_once++;
  all.functions[token] = {function, data};
  return token;
}

std::uint64_t host_function_token(CUhostFn function, void* data) {
  HostFunctions& all = host_functions();
  const std::lock_guard lock(all.mutex);
  auto& token = all.tokens[{function, data}];
  if (token == 0) {
    token = all.tokens.size();
    all.functions[token] = {function, data};
  }
  return token;
}

CUhostFn host_function_of(std::uint64_t token, void*& data) {
  HostFunctions& all = host_functions();
  const std::lock_guard lock(all.mutex);
  const auto found = all.functions.find(token);
  if (found == all.functions.end()) return nullptr;
  data = found->second.second;
  return found->second.first;
}

void watch_host_functions() {
  HostFunctions& all = host_functions();
  {
    const std::lock_guard lock(all.mutex);
    if (std::exchange(all.watched, true)) return;
  }
  // Signals belong to the program's own threads.
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread(watch).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool host_functions_are_used() {
  HostFunctions& all = host_functions();
  const std::lock_guard lock(all.mutex);
  return all.watched;
}

bool host_function_called(std::span<const std::byte> body) {
  Called called{};
  if (body.size() != sizeof(called)) return false;
  std::memcpy(&called, body.data(), sizeof(called));
  HostFunctions& all = host_functions();
  const std::lock_guard lock(all.mutex);
  if (!all.functions.contains(called.token) || all.called.size() >= most_called) return false;
  all.called.push_back(called);
  return true;
}

bool in_host_function() {
  return running;
}

void expect_host_function() {
  ++host_functions().expected;
}

void limit_work_behind_host_functions() {
  constexpr int most = 256;
  HostFunctions& all = host_functions();
  if (all.expected.load() == 0) return;
  if (++all.work_behind <= most) return;
  wait_for_host_functions();
  all.work_behind = 0;
}

void wait_for_host_functions() {
  HostFunctions& all = host_functions();
  if (all.expected.load() == 0) return;
  {
    std::unique_lock lock(all.mutex);
    if (all.fewer.wait_for(lock, std::chrono::seconds(1), [&] { return all.expected.load() == 0; })) return;
  }
  // Slow ones are waited for with everything else; after an error of the context they are never called.
  messages::SynchronizeContext m;
  m.context = current_context();
  replies::SynchronizeContext reply;
  std::vector<std::byte> bytes;
  if (m.context != 0) static_cast<void>(ask(m, reply, m.context, bytes));
  all.expected = 0;
}

}  // namespace gpupool::client
