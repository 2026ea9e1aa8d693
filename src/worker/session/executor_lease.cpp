// What a session's devices do, and what becomes of it when the lease has ended.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "worker/conversation/waiting_call.h"
#include "worker/session/executor.h"

namespace gpupool::worker {

/// Nothing is waited for: a thread that executes a frame may be held up in the driver.
bool Executor::drained() {
  const Residence::Visit visit(&parking.residence);
  if (!visit) return true;  // memory leaves only when all work is done
  const std::unique_lock lock(executing_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const auto pending = [this] {
    const std::lock_guard serving(serving_);
    return served_ != nullptr && served_->holds_unread();
  };
  return !pending() && lanes_.active() == 0 && work.is_complete();
}

bool Executor::drain(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!drained()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool Executor::stop_work() {
  if (!work.stop()) return false;
  refuse_waiting();
  return true;
}

/// Those that may be made once more under the next lease; the others have done something already, and wait.
void Executor::refuse_waiting() {
  std::list<std::weak_ptr<WaitingCall>> calls;
  {
    const std::lock_guard lock(waiting_);
    calls.swap(waiting_calls_);
  }
  for (const auto& one : calls) {
    if (const auto call = one.lock()) refuse(*call);
  }
}

}  // namespace gpupool::worker
