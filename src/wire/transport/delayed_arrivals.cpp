#include "wire/transport/delayed_arrivals.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace gpupool::wire {

bool DelayedArrivals::put(std::span<const std::byte> bytes) {
  MutexLock lock(mutex_);
  while (!bytes.empty()) {
    changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return closed_ || bytes_ < room_; });
    if (closed_) return false;
    const auto some = bytes.first(std::min(bytes.size(), link_piece));
    bytes = bytes.subspan(some.size());
    arrived_.push_back({clock_.due_of(some.size()), {some.begin(), some.end()}});
    bytes_ += some.size();
    if (arrived_.size() == 1) changed_.notify_all();
  }
  return true;
}

void DelayedArrivals::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void DelayedArrivals::cut() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    arrived_.clear();
    taken_ = bytes_ = 0;
  }
  changed_.notify_all();
}

void DelayedArrivals::wait(std::optional<Clock::time_point> latest) {
  for (;;) {
    const auto now = Clock::now();
    if (arrived_.empty() ? closed_ : arrived_.front().due <= now) return;
    if (latest && *latest <= now) return;
    if (arrived_.empty()) {
      if (latest) {
        changed_.wait_until(mutex_, *latest);
      } else {
        changed_.wait(mutex_);
      }
      continue;
    }
    const auto due = arrived_.front().due;
    const auto until = latest ? std::min(due, *latest) : due;
    // More behind it: then nobody waits for this one alone.
    const bool last = arrived_.size() == 1;
    if (!last || until - now > link_precision) {
      changed_.wait_until(mutex_, last ? until - link_precision : until);
      continue;
    }
    const MutexUnlock meanwhile(mutex_);
    spin_until(until);
  }
}

std::size_t DelayedArrivals::take(void* into, std::size_t room) {
  MutexLock lock(mutex_);
  wait(std::nullopt);
  std::size_t some = 0;
  while (some < room && !arrived_.empty() && arrived_.front().due <= Clock::now()) {
    DelayedBytes& first = arrived_.front();
    const std::size_t part = std::min(room - some, first.bytes.size() - taken_);
    std::memcpy(static_cast<std::byte*>(into) + some, first.bytes.data() + taken_, part);
    some += part;
    taken_ += part;
    if (taken_ < first.bytes.size()) break;
    bytes_ -= first.bytes.size();
    arrived_.pop_front();
    taken_ = 0;
  }
  lock.unlock();
  changed_.notify_all();
  return some;
}

bool DelayedArrivals::readable(int timeout_ms) {
  MutexLock lock(mutex_);
  std::optional<Clock::time_point> latest;
  if (timeout_ms >= 0) latest = Clock::now() + std::chrono::milliseconds(timeout_ms);
  wait(latest);
  return arrived_.empty() ? closed_ : arrived_.front().due <= Clock::now();
}

bool DelayedArrivals::holds_unread() {
  const MutexLock lock(mutex_);
  return !arrived_.empty() && arrived_.front().due <= Clock::now();
}

}  // namespace gpupool::wire
