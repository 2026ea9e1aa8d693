// What a session has used since its worker started. Written by the session, read by the control thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpupool::worker {

/// A copy of all counters at one moment (each exact; together within the calls in flight).
struct UsageSnapshot {
  std::uint64_t device_ns = 0;  ///< measured busy time of the devices (device_timer.h)
  std::uint64_t kernels = 0;    ///< kernel launches
  std::uint64_t calls = 0;      ///< messages executed: posts + asks
  std::uint64_t posts = 0;
  std::uint64_t asks = 0;
  std::uint64_t ask_ns = 0;         ///< time spent between an ask's arrival and its reply
  std::uint64_t bytes_in = 0;       ///< payload client -> worker
  std::uint64_t bytes_out = 0;      ///< payload worker -> client
  std::int64_t last_submit_ns = 0;  ///< CLOCK_BOOTTIME of the last call that gave the device work; 0 = never
  bool in_flight = false;           ///< device work submitted and not known to be complete

  bool operator==(const UsageSnapshot&) const = default;
};

/// Thread-safe: every counter is its own relaxed atomic.
class Usage {
 public:
  std::atomic<std::uint64_t> device_ns{0}, kernels{0}, posts{0}, asks{0}, ask_ns{0}, bytes_in{0},
      bytes_out{0};
  std::atomic<std::int64_t> last_submit_ns{0};
  std::atomic<bool> in_flight{false};

  void post() noexcept { posts.fetch_add(1, std::memory_order_relaxed); }
  void ask(std::uint64_t nanoseconds) noexcept {
    asks.fetch_add(1, std::memory_order_relaxed);
    ask_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  void received(std::uint64_t bytes) noexcept { bytes_in.fetch_add(bytes, std::memory_order_relaxed); }
  void sent(std::uint64_t bytes) noexcept { bytes_out.fetch_add(bytes, std::memory_order_relaxed); }

  /// A call that gives the device work; `kernels_launched` is 0 for copies and fills.
  void submitted(std::int64_t now_ns, std::uint64_t kernels_launched) noexcept {
    kernels.fetch_add(kernels_launched, std::memory_order_relaxed);
    last_submit_ns.store(now_ns, std::memory_order_relaxed);
  }

  [[nodiscard]] UsageSnapshot snapshot() const noexcept;
};

}  // namespace gpupool::worker
