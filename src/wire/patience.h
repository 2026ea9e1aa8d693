// Whether to look again and again before going to sleep.
//
// Waking a sleeper costs several microseconds, an answer on the same machine comes after one. But whoever
// spins keeps a core from others, on a busy machine from the very process it waits for; then every wait would
// be as long as the spinning. So spinning in vain a few times in a row ends it for a while, longer each time,
// and a success brings it back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gpupool::wire {

/// One for each direction of a stream. A second thread that waits at the same time only disturbs the
/// statistics.
class Patience {
 public:
  static constexpr std::chrono::nanoseconds spin_time{20'000};
  static constexpr std::uint32_t vain_limit = 2;      ///< so often in a row
  static constexpr std::uint32_t shortest_rest = 16;  ///< waits without spinning
  static constexpr std::uint32_t longest_rest = 1024;

  /// `alone`: this process may use one core only, so nobody can answer while it spins.
  explicit Patience(bool alone) : alone_(alone) {}

  /// Looks for as long as that may be worth it; whether `ready` came true.
  template <class Ready>
  bool spin(Ready ready) {
    if (alone_) return false;
    if (const auto left = resting_.load(std::memory_order_relaxed); left > 0) {
      resting_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    const auto end = Clock::now() + spin_time;
    do {
      for (int n = 0; n < 16; ++n) {
        if (ready()) {
          vain_.store(0, std::memory_order_relaxed);
          rest_.store(shortest_rest, std::memory_order_relaxed);
          return true;
        }
        pause();
      }
    } while (Clock::now() < end);
    in_vain();
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;

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

  bool alone_;
  std::atomic<std::uint32_t> vain_{0}, resting_{0}, rest_{shortest_rest};
};

}  // namespace gpupool::wire
