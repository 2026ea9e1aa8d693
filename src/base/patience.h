// Whether to look again and again before going to sleep.
//
// Waking a sleeper costs several microseconds, in a virtual machine 20 to 40; an answer on the same machine
// comes after one, and many kernels are shorter. But whoever spins keeps a core from others, on a busy
// machine from the very thread it waits for; then every wait would be as long as the spinning. So spinning in
// vain a few times in a row ends it for a while, longer each time, and a success brings it back. The core is
// kept, not yielded: who yields beside busy programs comes back after all of their turns, milliseconds later,
// while who sleeps and is woken comes first.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gpupool {

/// One for each place that waits for something of its own. A second thread that waits at the same time only
/// disturbs the statistics.
class Patience {
 public:
  static constexpr std::uint32_t vain_limit = 2;     ///< so often in a row
  static constexpr std::uint32_t shortest_rest = 2;  ///< waits without spinning
  static constexpr std::uint32_t longest_rest = 1024;
  static constexpr int looks = 16;  ///< before the clock is asked

  /// `longest`: no longer than what sleeping instead may cost, or others lose more than this wins.
  explicit Patience(std::chrono::nanoseconds longest) : longest_(longest) {}

  /// Looks for as long as that may be worth it; whether `ready` came true. What `ready` reads is read without
  /// a lock; it says what to do next, and is to be asked again under the lock that guards it.
  template <class Ready>
  bool spin(Ready ready) {
    if (ready()) return true;  // which tells nothing of spinning
    if (const auto left = resting_.load(std::memory_order_relaxed); left > 0) {
      resting_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    if (look(ready)) {
      vain_.store(0, std::memory_order_relaxed);
      rest_.store(shortest_rest, std::memory_order_relaxed);
      return true;
    }
    in_vain();
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class Ready>
  bool look(Ready& ready) const {
    const auto end = Clock::now() + longest_;
    for (bool first = true;; first = false) {
      for (int n = 0; n < looks; ++n) {
        pause();
        if (ready()) return true;
      }
      if (Clock::now() >= end) return false;
      // With one core only, what is waited for needs that one. Asked while waiting, and each time: programs
      // move their threads.
      if (first && one_core_only()) return false;
    }
  }
  static bool one_core_only() {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < 2;
  }
  void in_vain() {
    const auto times = vain_.load(std::memory_order_relaxed) + 1;
    vain_.store(times, std::memory_order_relaxed);
    if (times < vain_limit) return;
    const auto rest = rest_.load(std::memory_order_relaxed);
    resting_.store(rest, std::memory_order_relaxed);
    if (rest < longest_rest) rest_.store(rest * 2, std::memory_order_relaxed);
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const std::chrono::nanoseconds longest_;
  std::atomic<std::uint32_t> vain_{0}, resting_{0}, rest_{shortest_rest};
};

}  // namespace gpupool
