// What the worker has told about a device's share. It is told on whatever thread reads, which must wait for
// nobody; who allocates takes it over.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace gpupool::client {

/// Thread-safe. Its lock is never held while anything else is waited for.
class ToldShare {
 public:
  explicit ToldShare(std::uint64_t limit) : view_{limit, 0} {}

  struct View {
    std::uint64_t limit;
    std::uint64_t beside;  ///< what the worker takes of it for what is not counted here
  };
  /// The worker would like the share to be smaller.
  struct Wish {
    std::uint64_t limit;
    std::uint32_t number;
  };

  void set_limit(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    view_.limit = bytes;
    wish_.reset();  // what was wished for has been decided
    changed_.store(true);
  }
  /// By how much that has grown.
  std::uint64_t set_beside(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    const std::uint64_t more = bytes > view_.beside ? bytes - view_.beside : 0;
    view_.beside = bytes;
    changed_.store(true);
    if (refused_ && more >= *refused_) refused_.reset();
    return more;
  }
  /// The worker had no room for so many bytes.
  void set_refusal(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    refused_ = bytes;
  }
  /// The last that has not been taken, or served meanwhile.
  [[nodiscard]] std::optional<std::uint64_t> take_refusal() {
    const MutexLock lock(mutex_);
    return std::exchange(refused_, std::nullopt);
  }
  void set_wish(const Wish& wish) {
    const MutexLock lock(mutex_);
    wish_ = wish;
  }
  [[nodiscard]] std::optional<Wish> wish() {
    const MutexLock lock(mutex_);
    return wish_;
  }
  /// The wish has been dealt with. `granted`: from now on the share has that size, unless something else was
  /// told meanwhile.
  void settle(const Wish& wish, bool granted) {
    const MutexLock lock(mutex_);
    if (!wish_ || wish_->number != wish.number) return;
    wish_.reset();
    if (!granted) return;
    view_.limit = wish.limit;
    changed_.store(true);
  }
  /// What is true now; nothing when that has been taken over already.
  [[nodiscard]] std::optional<View> take_changes() {
    if (!changed_.load(std::memory_order_relaxed)) return std::nullopt;
    const MutexLock lock(mutex_);
    changed_.store(false);
    return view_;
  }

 private:
  std::atomic<bool> changed_{false};
  Mutex mutex_;
  View view_ GUARDED_BY(mutex_);
  std::optional<Wish> wish_ GUARDED_BY(mutex_);
  std::optional<std::uint64_t> refused_ GUARDED_BY(mutex_);
};

}  // namespace gpupool::client
