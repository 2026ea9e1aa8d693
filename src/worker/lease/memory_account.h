// The memory share of one device, counted in bytes: the only place where the limit is enforced.
//
//   limit   the share
//   used    the context's reserve, allocations, and what lies beside them
//   beside  modules, arrays, memory of graphs, heaps: what the client does not count itself
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpupool::worker {

/// Thread-safe. Reserve before asking the driver; release when it refused or when the memory was freed.
class MemoryAccount {
 public:
  MemoryAccount() = default;
  /// `context_reserve` is what the driver takes for a context itself: in use from the start, for good.
  explicit MemoryAccount(std::uint64_t limit_bytes, std::uint64_t context_reserve = 0)
      : reserve_(context_reserve), used_(context_reserve), peak_(context_reserve), limit_(limit_bytes) {}

  struct View {
    std::uint64_t used, peak, limit;
  };

  /// False, and nothing changed, when `bytes` more would pass the limit.
  [[nodiscard]] bool reserve(std::uint64_t bytes);

  /// Nobody has room for `bytes` more: what reserve() says by itself, and what a driver may say after it.
  void refused(std::uint64_t bytes) { refused_.store(bytes); }
  /// The last of these that has not been taken; 0: there was none.
  [[nodiscard]] std::uint64_t take_refusal() { return refused_.exchange(0); }

  /// Gives bytes back; more than are used leaves zero.
  void release(std::uint64_t bytes);

  /// The same for what the client does not count itself.
  [[nodiscard]] bool reserve_beside(std::uint64_t bytes);
  void release_beside(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t beside() const { return beside_.load(); }

  /// Sets the limit. False, and nothing changed, when that is below what is used.
  [[nodiscard]] bool resize(std::uint64_t limit_bytes);

  /// Starts a new peak at what is used now.
  void reset_peak();

  /// Memory of other processes that is counted here too.
  void import_began() { ++imports_; }
  void import_ended() { --imports_; }
  [[nodiscard]] int imports() const { return imports_.load(); }

  [[nodiscard]] View view() const;
  [[nodiscard]] std::uint64_t used() const { return view().used; }
  [[nodiscard]] std::uint64_t peak() const { return view().peak; }
  [[nodiscard]] std::uint64_t limit() const { return view().limit; }
  /// What the driver takes for a context; the first one's is in use from the start.
  [[nodiscard]] std::uint64_t context_reserve() const { return reserve_; }
  /// What the session's objects take.
  [[nodiscard]] std::uint64_t allocated() const { return used() - reserve_; }
  /// What a program may have of the share.
  [[nodiscard]] std::uint64_t room() const { return room_of(limit()); }
  /// What it could have of a share of `limit_bytes`.
  [[nodiscard]] std::uint64_t room_of(std::uint64_t limit_bytes) const {
    return limit_bytes > reserve_ ? limit_bytes - reserve_ : 0;
  }

 private:
  const std::uint64_t reserve_ = 0;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t limit_ = 0;
  std::atomic<std::uint64_t> beside_{0};  // changed with mutex_ held
  std::atomic<int> imports_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace gpupool::worker
