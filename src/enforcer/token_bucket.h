// A hard cap on device time: so much per second, and a little at once. Pure: times are passed in.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpupool::enforcer {

/// Nobody can tell beforehand how long a kernel takes, so work may begin while there is anything in the
/// bucket, and what it took is paid for afterwards: the bucket goes below zero and the session waits until it
/// is full enough.
class TokenBucket {
 public:
  /// What can be saved up: this long at the rate of the share.
  static constexpr std::int64_t burst_ns = 100'000'000;
  /// Who has used it up begins again with this much, or with half a burst: not at every nanosecond.
  static constexpr std::int64_t start_ns = 3'000'000;

  TokenBucket(std::uint32_t milli, std::int64_t now_ns)
      : milli_(milli), filled_ns_(now_ns), tokens_(burst()) {}

  void resize(std::uint32_t milli, std::int64_t now_ns) {
    fill(now_ns);
    milli_ = milli;
    tokens_ = std::min(tokens_, burst());
  }

  void spend(std::int64_t device_ns) { tokens_ -= device_ns; }

  [[nodiscard]] bool empty(std::int64_t now_ns) {
    fill(now_ns);
    return tokens_ <= 0;
  }

  /// How long to wait until work may begin; 0: at once.
  [[nodiscard]] std::int64_t wait_ns(std::int64_t now_ns) {
    fill(now_ns);
    const std::int64_t missing = std::min(start_ns, burst() / 2) - tokens_;
    return missing <= 0 ? 0 : missing * 1000 / milli_ + 1;
  }

 private:
  [[nodiscard]] std::int64_t burst() const { return burst_ns / 1000 * milli_; }
  void fill(std::int64_t now_ns) {
    if (now_ns <= filled_ns_) return;
    // No longer than it takes to fill a bucket from the depth of a day: the product stays in range.
    const std::int64_t passed = std::min<std::int64_t>(now_ns - filled_ns_, 86'400'000'000'000);
    tokens_ = std::min(tokens_ + passed / 1000 * milli_ + passed % 1000 * milli_ / 1000, burst());
    filled_ns_ = now_ns;
  }

  std::uint32_t milli_;
  std::int64_t filled_ns_;
  std::int64_t tokens_;
};

}  // namespace gpupool::enforcer
