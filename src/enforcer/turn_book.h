// Whose turn a device is: weighted fair, work-conserving, by virtual time. Pure: it knows no clock, no file
// and no process; times and "is it alive" are passed in.
//
// Each session has a virtual time: measured device time divided by its share. Of those that want the device
// the one with the least goes next (start-time fair queueing). Who was away comes back at the present virtual
// time, less a small credit at most; who ran longer than its turn has a debt, whatever the reason.
//
// The data lies in memory that other processes write, so nothing in it is believed: slots are checked,
// weights clamped, times compared by difference. A wrong number can make a share wrong, never a process fail.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace gpupool::enforcer {

inline constexpr std::size_t most_sessions = 512;

/// One session's place. Its owner alone writes `virtual_ns` and `milli`; the rest is written under the lock.
struct alignas(64) Place {
  std::atomic<std::uint64_t> virtual_ns;  ///< device time x 1000 / share, counted from anywhere
  std::atomic<std::uint32_t> milli;       ///< 1..1000; 0: nobody is here
  std::atomic<std::uint32_t> wants;       ///< 1: waits for the turn
  std::atomic<std::uint32_t> granted;     ///< grows when the turn is given to it: a futex
  std::atomic<std::uint32_t> bell;        ///< grows when others want what it has: a futex
  /// 1: the others lost patience with its work, which is still on the device. Set under the lock; the owner
  /// clears it.
  std::atomic<std::uint32_t> overran;
};

/// All zero is a valid book of a device that nobody uses.
struct BookData {
  std::atomic<std::uint64_t> turn;        ///< low half: slot + 1 of who has it, 0: nobody; high half: a count
  std::atomic<std::uint64_t> present_ns;  ///< the virtual time of now
  std::atomic<std::uint64_t> since_ns;    ///< when the turn was taken, or last extended
  std::atomic<std::uint32_t> waiting;     ///< how many want it
  std::atomic<std::uint32_t> used;        ///< all places from here on are empty
  std::array<Place, most_sessions> places;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// How long turns are, in nanoseconds.
struct TurnLengths {
  /// A session that is this long times its share ahead of who waits gives the turn up; it comes back when it
  /// is as far behind, so that a turn is up to twice as long.
  std::uint64_t round = 16'000'000;
  std::uint64_t shortest = 1'000'000;
  std::uint64_t longest = 10'000'000;
  /// Who does not end its turn for so long shares the device with the next: a kernel cannot be taken off it.
  std::uint64_t patience = 2'000'000'000;
  /// The same while that kernel runs on: the device is shared already, so waiting for a turn's end is of no
  /// use.
  std::uint64_t patience_beside = 20'000'000;
};

class TurnBook {
 public:
  using Alive = std::function<bool(std::size_t slot)>;

  explicit TurnBook(BookData& data, TurnLengths lengths = {}) : data_(data), lengths_(lengths) {}

  // Under the lock.

  void join(std::size_t slot, std::uint32_t milli);
  void leave(std::size_t slot);
  /// `slot` waits from now on. Idempotent.
  void want(std::size_t slot, std::uint64_t now_ns);
  void withdraw(std::size_t slot);
  /// Gives the turn to who is next, if nobody has it, its holder is dead, or has had it for too long. Returns
  /// who is to be woken.
  std::optional<std::size_t> pass(std::uint64_t now_ns, const Alive& alive);

  // Without the lock, by the session itself.

  void resize(std::size_t slot, std::uint32_t milli);
  /// Takes a turn that nobody has and nobody waits for.
  bool take(std::size_t slot, std::uint64_t now_ns);
  /// Gives the turn back. True: somebody waits, so pass() is to be called.
  bool give_up(std::size_t slot);
  [[nodiscard]] bool has(std::size_t slot) const;
  /// All that `slot` had given the device is done: the others have patience with it again.
  void drained(std::size_t slot);
  [[nodiscard]] bool contended() const { return data_.waiting.load(std::memory_order_seq_cst) != 0; }
  /// Who has the turn; none: nobody, or what stands there makes no sense.
  [[nodiscard]] std::optional<std::size_t> holder() const;
  void charge(std::size_t slot, std::uint64_t device_ns);
  /// Whether the holder's turn is over, if what it has given the device takes `under_way_ns` more. Never
  /// while nobody waits.
  [[nodiscard]] bool over(std::size_t slot, std::uint64_t under_way_ns) const;
  /// Whether the holder is so far behind that the device should be kept for it while it thinks for a moment.
  [[nodiscard]] bool behind(std::size_t slot) const;
  [[nodiscard]] std::uint64_t turn_ns(std::size_t slot) const;

 private:
  [[nodiscard]] Place* place(std::size_t slot) const;
  [[nodiscard]] std::size_t used() const;
  [[nodiscard]] std::uint32_t milli(std::size_t slot) const;
  [[nodiscard]] std::optional<std::size_t> first_waiting() const;
  [[nodiscard]] std::uint64_t present() const;
  void catch_up(std::size_t slot, std::uint64_t present_ns);
  void give(std::size_t slot, std::uint64_t now_ns);
  void count_waiting();

  BookData& data_;
  TurnLengths lengths_;
};

}  // namespace gpupool::enforcer
