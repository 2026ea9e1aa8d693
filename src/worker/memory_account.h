// The memory share of one device, counted in bytes: the only place where the limit is enforced.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpupool::worker {

/// Thread-safe. Reserve before asking the driver; release when it refused or when the memory was freed.
class MemoryAccount {
 public:
  MemoryAccount() = default;
  explicit MemoryAccount(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

  struct View {
    std::uint64_t used, peak, limit;
  };

  /// False, and nothing changed, when `bytes` more would pass the limit.
  [[nodiscard]] bool reserve(std::uint64_t bytes);

  /// Gives bytes back; more than are used leaves zero.
  void release(std::uint64_t bytes);

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
  /// What the session's objects take.
  [[nodiscard]] std::uint64_t allocated() const { return used(); }

 private:
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t limit_ = 0;
  std::atomic<int> imports_{0};
};

}  // namespace gpupool::worker
