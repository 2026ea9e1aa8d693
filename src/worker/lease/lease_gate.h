// Decides whether a call may run now: the worker's side of a lease.
//
// A lease has an epoch (fencing token) and a deadline on CLOCK_BOOTTIME. Wall time is never used: it may
// jump, and a suspended machine must wake up fenced. Time is passed in, so the rules are tested without a
// clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpupool::worker {

/// Why a call may or may not run. The numbers are those of the reply status on the wire.
enum class Admission : std::uint32_t {
  ok = 0,
  not_attached = 1,  ///< a lease that the worker has not been told of yet: it may be good a moment later
  past_epoch = 2,    ///< the call belongs to a lease that has ended
  fenced = 3,        ///< the deadline went by without a renewal; only a higher epoch opens the gate again
};

enum class LeaseState : std::uint8_t { parked, attached, fenced };

/// What became of a grant, renewal or revocation.
enum class LeaseAnswer : std::uint8_t {
  ok,
  past_epoch,  ///< lower than the epoch known, or equal to one already revoked
  fenced,      ///< a renewal that came after the deadline: it must not resurrect the lease
};

/// One lease at a time. `admits` may be called from any thread and takes no lock; the other members
/// serialise among themselves.
class LeaseGate {
 public:
  struct View {
    LeaseState state;
    std::uint32_t epoch;       ///< highest epoch ever seen; 0 before the first
    std::int64_t deadline_ns;  ///< CLOCK_BOOTTIME
    bool unserved = false;     ///< see begin()
  };

  /// Grants the first lease, whose deadline may go by before anybody can be served: until a call has been
  /// admitted under it or it was renewed, a renewal may come late.
  LeaseAnswer begin(std::uint32_t epoch, std::int64_t deadline_ns);

  /// Grants `epoch`, or renews it when it is the current one. `deadline_ns` never moves back within an epoch.
  LeaseAnswer grant(std::uint32_t epoch, std::int64_t deadline_ns, std::int64_t now_ns);

  /// Ends `epoch`. Idempotent; naming a higher epoch than the current one bars every epoch up to it.
  LeaseAnswer revoke(std::uint32_t epoch);

  /// Whether a call made under `epoch` may run at `now_ns`.
  [[nodiscard]] Admission admits(std::uint32_t epoch, std::int64_t now_ns) const noexcept;

  /// State as of `now_ns`: `fenced` when an attached lease is past its deadline.
  [[nodiscard]] View view(std::int64_t now_ns) const noexcept;

 private:
  struct Record {
    std::uint32_t epoch;
    bool attached;
    std::int64_t deadline_ns;
    bool unserved = false;
  };
  [[nodiscard]] Record read() const noexcept;
  void write(Record record) noexcept;

  std::mutex writers_;
  // A sequence lock: epoch and deadline must be read as a pair, or a call of the old epoch could pass on the
  // deadline of the new one.
  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> attached_{false};
  std::atomic<std::int64_t> deadline_ns_{0};
  mutable std::atomic<bool> unserved_{false};  // whoever is admitted ends it, too
};

/// CLOCK_BOOTTIME in nanoseconds.
[[nodiscard]] std::int64_t boottime_ns() noexcept;

}  // namespace gpupool::worker
