// Waiting awake for a moment before a thread goes to sleep.
//
// Waking a thread that sleeps on another core takes about 20 us, more than many kernels. A GPU's driver polls
// for the same reason. Who waits awake gives its core to anybody who wants it: with one core, or with more
// threads than cores, this is a chain of switches between threads, not time lost.
#pragma once

#include <sched.h>

#include <chrono>

namespace softgpu {

// As long as two wake-ups: a thread that then sleeps after all has lost no more than it would have.
inline constexpr std::chrono::microseconds kAwake{50};

// Until `condition` holds, or for kAwake; returns whether it held. `condition` is called without any lock, so
// it reads atomics; what it says is a hint, to be asked again under the lock that guards it.
template <typename Condition>
bool wait_awake(const Condition& condition) {
  if (condition()) return true;
  const auto until = std::chrono::steady_clock::now() + kAwake;
  do {
    sched_yield();
    if (condition()) return true;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace softgpu
