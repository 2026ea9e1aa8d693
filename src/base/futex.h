// Waiting on a word of memory that two processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace gpupool::wire {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Sleeps while the word is `value`, at most `timeout_ns` (negative: for ever). May return early.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t timeout_ns) {
  const timespec limit{static_cast<time_t>(timeout_ns / 1'000'000'000),
                       static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}

/// Wakes everybody who sleeps on the word, in whatever process.
inline void futex_wake(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gpupool::wire
