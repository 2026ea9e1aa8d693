// One session's part in the turns on one device: it asks for the turn before it gives the device work, and
// gives it back when the device has finished it.
//
// A kernel that takes longer than a turn is stopped at its end, where the device can do that, and goes on in
// the session's next turn. Where it cannot, the others lose patience after two seconds (TurnLengths), and
// what the kernel took is paid back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "enforcer/pacing.h"
#include "enforcer/token_bucket.h"
#include "enforcer/turn_book.h"
#include "enforcer/turn_file.h"

namespace gpupool::enforcer {

/// What measures the session's work on the device.
class Gauge {
 public:
  struct Reading {
    std::uint64_t busy_ns = 0;           ///< measured so far; only grows
    std::uint64_t first_unfinished = 0;  ///< number of the first piece that is not known to be complete
    bool in_flight = false;              ///< there is work that is not known to be complete
  };
  virtual ~Gauge() = default;
  /// Ends the piece of work that is open and returns its number. The executing thread alone calls it.
  virtual std::uint64_t cut() = 0;
  /// Looks without waiting. Any thread.
  virtual Reading look() = 0;
  /// Whether the device can stop what runs.
  [[nodiscard]] virtual bool can_stop() const { return false; }
  /// Stops what runs where it is until go_on(); it takes no device time meanwhile. False: this device cannot.
  /// Any thread.
  virtual bool stop() { return false; }
  virtual void go_on() {}
};

/// What the session itself knows.
struct SessionFacts {
  /// Whether the call that asks may still be executed: its lease is in force.
  std::function<bool()> admitted;
  /// Whether the device waits for something that only a later call of the session brings.
  std::function<bool()> needed;
  /// Whether the session's work stands still for another reason, and wants no turn.
  std::function<bool()> stands = [] { return false; };
};

class DeviceTurn {
 public:
  /// How long the death of a session can keep others from the device, at most.
  static constexpr std::int64_t look_after_ns = 20'000'000;
  /// The device is kept for a session that is behind, for so long; the more seldom the oftener that was in
  /// vain.
  static constexpr std::int64_t thinking_ns = 2'000'000;

  /// Joins the sessions of the device's file. `milli` is followed: a new share counts from the next call on.
  /// What `gauge` has measured before is no business of this device's.
  /// Throws std::runtime_error.
  DeviceTurn(const std::string& path, const std::atomic<std::uint32_t>& milli, bool strict, Gauge& gauge,
             SessionFacts facts);
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

  /// Before a call that gives the device work; calls of one `key` take about the same time. Returns when the
  /// session has the turn. False: its lease has ended meanwhile. The executing thread alone calls this and
  /// the next.
  [[nodiscard]] bool before_work(std::uint64_t key);
  /// The executing thread has nothing to execute, or is about to wait; the piece `number` has been cut.
  void paused(std::uint64_t number);

  /// Gives the turn back if it is of no use any more. Any thread.
  void tidy();
  [[nodiscard]] bool contended() const { return book_.contended(); }

 private:
  bool gets_turn(std::uint64_t key) REQUIRES(mutex_);
  bool goes_on(std::uint64_t key) REQUIRES(mutex_);
  bool end_turn() REQUIRES(mutex_);
  bool wait_for_turn(const std::function<bool()>& wanted, bool for_call) REQUIRES(mutex_);
  [[nodiscard]] bool is_over() REQUIRES(mutex_);
  bool stop_running() REQUIRES(mutex_);
  void run_on() REQUIRES(mutex_);
  void give_all_up() REQUIRES(mutex_);
  void attend() REQUIRES(mutex_);
  bool wait_for_tokens(const std::function<bool()>& wanted) REQUIRES(mutex_);
  bool account() REQUIRES(mutex_);
  void rest() REQUIRES(mutex_);
  [[nodiscard]] bool kept_for_thinking() REQUIRES(mutex_);
  void hand_back() REQUIRES(mutex_);
  void follow_share() REQUIRES(mutex_);
  void keep();
  void nap(std::int64_t ns) REQUIRES(mutex_);

  TurnFile file_;
  TurnBook book_;
  const std::size_t slot_;
  const std::atomic<std::uint32_t>& share_;
  Gauge& gauge_;
  const SessionFacts facts_;

  Mutex mutex_;
  std::uint32_t milli_ GUARDED_BY(mutex_);
  std::optional<TokenBucket> bucket_ GUARDED_BY(mutex_);  // strict
  Pacing pacing_ GUARDED_BY(mutex_);
  bool open_ GUARDED_BY(mutex_) = false;    // the executing thread may give work without asking
  bool asking_ GUARDED_BY(mutex_) = false;  // it is in before_work()
  std::int64_t shared_at_ns_ GUARDED_BY(mutex_) =
      0;                                         // when somebody else was last seen to wait for the device
  std::uint64_t charged_ns_ GUARDED_BY(mutex_);  // of what the gauge has measured
  std::uint64_t piece_busy_ns_ GUARDED_BY(mutex_) = 0;
  std::int64_t idle_since_ns_ GUARDED_BY(mutex_) =
      0;                                           // the session paused with nothing under way; 0: it did not
  bool kept_ GUARDED_BY(mutex_) = false;           // and the device was kept for it since
  std::uint32_t in_vain_ GUARDED_BY(mutex_) = 1;   // grows with each time it was kept for nothing
  std::uint32_t not_kept_ GUARDED_BY(mutex_) = 0;  // so many times it is not kept now
  bool stopped_ GUARDED_BY(mutex_) = false;  // what runs stands still until the session has the turn again
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread keeper_;  // the last member: it uses the others
};

}  // namespace gpupool::enforcer
