// From the end of a lease to the moment at which nothing of it computes. Pure: times are passed in.
//
//   draining   what was posted is executed; the gate is still open   (not after a fence: it is shut already)
//   finishing  the gate is shut; what the devices were given goes on, for the rest of the grace
//   over       nothing computes, or it was stopped: the share is free
//
// 1. The gate is shut before anybody is told that the lease is over, and at the latest when the draining has
//    taken its time.
// 2. The grace counts from the end of the lease, not from the shutting of the gate.
// 3. There is one grace for a lease. Work that begins after it was over, because a stream waited for a
// function of the
//    client's, has what is left of it: else each kernel behind such a function would have a grace of its own.
// 4. A later lease that is revoked meanwhile shuts the gate at once: it may be on its way, and must not be
//    granted. Its end is over with this one.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpupool::worker {

struct LeaseEndTimers {
  std::int64_t drain_ns = 2'000'000'000;  ///< how long posted calls are still executed
  std::int64_t grace_ns = 4'000'000'000;  ///< after so long in all, what computes is stopped

  /// The first half is for what was posted.
  [[nodiscard]] static constexpr LeaseEndTimers of_grace(std::int64_t ns) { return {ns / 2, ns}; }
};

class LeaseEnd {
 public:
  /// `gate_open`: the lease was in force until now. `spent_ns`: of the grace, by work that is complete.
  LeaseEnd(std::uint32_t epoch, bool gate_open, std::int64_t now_ns, LeaseEndTimers timers,
           std::int64_t spent_ns = 0)
      : epoch_(epoch), barred_(epoch), draining_(gate_open), began_ns_(now_ns - spent_ns), timers_(timers) {}

  enum class Next : std::uint8_t {
    wait,
    shut,  ///< the gate; shut() must follow
    over,
    stop  ///< what computes; then it is over
  };
  /// `drained`: what was received is executed and complete. `computes`: the devices work for the session.
  [[nodiscard]] Next look(bool drained, bool computes, std::int64_t now_ns) const {
    const std::int64_t passed = now_ns - began_ns_;
    if (draining_) return drained || passed >= timers_.drain_ns ? Next::shut : Next::wait;
    if (!computes) return Next::over;
    return passed >= timers_.grace_ns ? Next::stop : Next::wait;
  }
  void shut() { draining_ = false; }
  /// The gate has been shut to all epochs up to this one.
  void bars(std::uint32_t epoch) {
    barred_ = std::max(barred_, epoch);
    shut();
  }

  /// Of the lease that ends.
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  /// The last epoch that has ended when this is over.
  [[nodiscard]] std::uint32_t barred() const { return barred_; }
  [[nodiscard]] bool draining() const { return draining_; }
  /// As if all its work had been done without a pause.
  [[nodiscard]] std::int64_t began_ns() const { return began_ns_; }

 private:
  std::uint32_t epoch_;
  std::uint32_t barred_;
  bool draining_;
  std::int64_t began_ns_;
  LeaseEndTimers timers_;
};

}  // namespace gpupool::worker
