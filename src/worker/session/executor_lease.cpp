// What a session's devices do, and what becomes of it when the lease has ended.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "worker/conversation/waiting_call.h"
#include "worker/driver/kernel_name.h"
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
  return !pending() && lanes_.active() == 0 && work_is_complete();
}

bool Executor::drain(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!drained()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A stream that waits for a function of the client's is no work, and the client may be gone: it is neither
/// charged to anybody else nor a reason to end the session.
bool Executor::computes() {
  const Residence::Visit visit(&parking.residence);
  return visit && !software_work_.stopped(StopReason::no_lease) && !host_calls.under_way() &&
         !work_is_complete();
}

bool Executor::stop_work() {
  if (!software_work_.stop(StopReason::no_lease)) return false;
  look_at_work();
  refuse_waiting();
  return true;
}

void Executor::go_on() {
  if (!software_work_.stopped(StopReason::no_lease)) return;
  software_work_.go_on(StopReason::no_lease);
  look_at_work();
}

void Executor::look_at_work() {
  const Residence::Visit visit(&parking.residence);
  if (!timer_ || !visit) return;
  timer_->resolve();
  if (const DeviceFailure failure = timer_->failure(); failure.error != 0)
    state.work.failed({failure.error, short_kernel_name(failure.kernel)});
  RunningBurst burst = timer_->running();
  // A burst may have several kernels: a driver that knows which one runs is right.
  if (const auto kernel = software_work_.running()) burst = {true, kernel->ns, kernel->name};
  const std::int64_t now = boottime_ns();
  WorkView view;
  if (burst.running) {
    const bool leased = state.gate.view(now).state == LeaseState::attached;
    view.state = software_work_.stopped(StopReason::no_lease) ? WorkState::stopped
                 : leased                                     ? WorkState::running
                                                              : WorkState::draining;
    view.kernel = short_kernel_name(burst.kernel);
    view.since_ns = now - burst.ns;
  }
  state.work.tell(std::move(view));
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
