// Waiting awake for a moment before a thread goes to sleep.
//
// Waking a thread that sleeps on another core takes 20 to 40 us in a virtual machine, more than many kernels.
// A GPU's driver polls for the same reason. But who polls has a core that others may need, perhaps the one
// whose answer is waited for, so each place that waits goes by its luck: where polling was in vain it sleeps
// at once for a while. The core is kept, not yielded: who yields beside busy programs comes back after all of
// their turns, milliseconds later, while who sleeps and is woken comes first.
#pragma once

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace softgpu {

// Of one thread.
class WaitAwake {
 public:
  // About as long as a wake-up: a thread that then sleeps after all has lost no more than that.
  explicit WaitAwake(std::chrono::microseconds longest = std::chrono::microseconds(50)) : longest_(longest) {}

  // Until `condition` holds, or not at all, or for the longest; returns whether it held. `condition` is
  // called without any lock, so it reads atomics; what it says is a hint, to be asked again under the lock
  // that guards it.
  template <typename Condition>
  bool operator()(const Condition& condition) {
    if (condition()) return true;
    if (asleep_ > 0) {
      --asleep_;
      return false;
    }
    if (poll(condition)) {
      failures_ = 0;
      return true;
    }
    failures_ = std::min(failures_ + 1, kMostFailures);
    asleep_ = 1u << failures_;
    return false;
  }

 private:
  static constexpr unsigned kMostFailures = 10;

  template <typename Condition>
  bool poll(const Condition& condition) const {
    cpu_set_t cores;  // with one only, what is waited for needs that one
    if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) < 2) return false;
    const auto until = std::chrono::steady_clock::now() + longest_;
    do {
      for (int i = 0; i < 16; ++i) {
        _mm_pause();
        if (condition()) return true;
      }
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  const std::chrono::microseconds longest_;
  unsigned failures_ = 0;  // one after the other
  unsigned asleep_ = 0;    // times that polling is left out
};

}  // namespace softgpu
