#include "worker/lease/memory_account.h"

#include <algorithm>

namespace gpupool::worker {

bool MemoryAccount::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (used_ > limit_ || bytes > limit_ - used_) {
    refused(bytes);
    return false;
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return true;
}

void MemoryAccount::release(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= std::min(bytes, used_ - reserve_);
}

bool MemoryAccount::reserve_beside(std::uint64_t bytes) {
  if (!reserve(bytes)) return false;
  beside_ += bytes;
  return true;
}

void MemoryAccount::release_beside(std::uint64_t bytes) {
  release(bytes);
  beside_ -= std::min(bytes, beside_.load());
}

bool MemoryAccount::resize(std::uint64_t limit_bytes) {
  const std::lock_guard lock(mutex_);
  if (limit_bytes < used_) return false;
  limit_ = limit_bytes;
  return true;
}

void MemoryAccount::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}

MemoryAccount::View MemoryAccount::view() const {
  const std::lock_guard lock(mutex_);
  return {used_, peak_, limit_};
}

}  // namespace gpupool::worker
