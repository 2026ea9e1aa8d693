#include "worker/conversation/host_calls.h"

#include <utility>

#include "wire/frame.h"

namespace gpupool::worker {

void* HostCalls::argument(std::uint64_t token, bool once_allowed) {
  const std::lock_guard lock(mutex_);
  const bool once = (token & wire::once_only) != 0;
  if (once && (!once_allowed || calls_.contains(token))) return nullptr;
  auto& call = calls_[token];
  if (call == nullptr) {
    if (calls_.size() > max_calls) {
      calls_.erase(token);
      return nullptr;
    }
    call = std::make_unique<Call>(Call{this, token});
    arguments_.insert(call.get());
  }
  return call.get();
}

std::uint64_t HostCalls::token(const void* argument) {
  const std::lock_guard lock(mutex_);
  return arguments_.contains(argument) ? static_cast<const Call*>(argument)->token : 0;
}

void HostCalls::call(void* argument) {
  const Call call = *static_cast<const Call*>(argument);
  call.calls->run(call.token);
  if ((call.token & wire::once_only) != 0) call.calls->forget(call.token);
}

void HostCalls::forget(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(token);
  if (found == calls_.end()) return;
  arguments_.erase(found->second.get());
  calls_.erase(found);
}

void HostCalls::run(std::uint64_t token) {
  std::unique_lock lock(mutex_);
  const std::uint64_t conversation = conversation_;
  if (conversation % 2 == 0) return;
  const std::uint64_t number = next_run_++;
  running_.insert(number);
  lock.unlock();
  announce_({token, number}, [this, number] { done(number); });
  lock.lock();
  done_.wait(lock, [&] { return conversation_ != conversation || !running_.contains(number); });
  running_.erase(number);
}

bool HostCalls::under_way() {
  const std::lock_guard lock(mutex_);
  return !running_.empty();
}

void HostCalls::done(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  running_.erase(number);
  done_.notify_all();
}

void HostCalls::open() {
  const std::lock_guard lock(mutex_);
  if (conversation_ % 2 == 0) ++conversation_;
}

void HostCalls::close() {
  const std::lock_guard lock(mutex_);
  if (conversation_ % 2 == 1) ++conversation_;
  running_.clear();
  done_.notify_all();
}

bool HostCalls::give_up() {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return false;
  if (conversation_ % 2 == 1) ++conversation_;
  running_.clear();
  done_.notify_all();
  return true;
}

}  // namespace gpupool::worker
