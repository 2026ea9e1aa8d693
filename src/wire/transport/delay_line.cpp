#include "wire/transport/delay_line.h"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "base/mutex.h"
#include "base/quiet_thread.h"

namespace gpupool::wire {

DelayLine::DelayLine(LinkQuality quality, std::function<bool(std::span<const std::byte>)> deliver)
    : deliver_(std::move(deliver)), room_(quality.room()), clock_(quality) {
  thread_ = quiet_thread([this] { run(); });
}

DelayLine::~DelayLine() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool DelayLine::put(std::span<const std::byte> bytes) {
  MutexLock lock(mutex_);
  while (!bytes.empty()) {
    changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return ended_ || bytes_ < room_; });
    if (ended_) return false;
    const auto some = bytes.first(std::min(bytes.size(), link_piece));
    bytes = bytes.subspan(some.size());
    under_way_.push_back({clock_.due_of(some.size()), {some.begin(), some.end()}});
    bytes_ += some.size();
    if (under_way_.size() == 1) changed_.notify_all();
  }
  return !ended_;
}

void DelayLine::run() {
  prctl(PR_SET_NAME, "gpupool-link");
  prctl(PR_SET_TIMERSLACK, 1000);
  MutexLock lock(mutex_);
  while (!ended_) {
    if (stalled_ || under_way_.empty()) {
      if (closing_) break;
      changed_.wait(mutex_);
      continue;
    }
    if (const auto due = under_way_.front().due, now = Clock::now(); now < due) {
      // Behind the last one somebody may wait for an answer.
      const bool last = under_way_.size() == 1;
      if (!last || due - now > link_precision) {
        changed_.wait_until(mutex_, last ? due - link_precision : due);
      } else {
        lock.unlock();
        spin_until(due);
        lock.lock();
      }
      continue;
    }
    DelayedBytes next = std::move(under_way_.front());
    under_way_.pop_front();
    lock.unlock();
    const bool delivered = deliver_(next.bytes);
    lock.lock();
    bytes_ -= next.bytes.size();
    if (!delivered) ended_ = true;
    changed_.notify_all();
  }
  ended_ = finished_ = true;
  changed_.notify_all();
  const auto then = std::move(then_);
  lock.unlock();
  if (then) then();
}

void DelayLine::close(std::function<void()> then) {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (!finished_) {
      then_ = std::move(then);
      then = nullptr;
    }
  }
  changed_.notify_all();
  if (then) then();
}

void DelayLine::cut() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void DelayLine::stall(bool stalled) {
  {
    const MutexLock lock(mutex_);
    stalled_ = stalled;
  }
  changed_.notify_all();
}

void DelayLine::abandon_after_fork() noexcept {
  new (&thread_) std::thread();
}

}  // namespace gpupool::wire
