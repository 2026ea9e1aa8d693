#include "wire/transport/delay_line.h"

#include <sys/prctl.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <new>

#include "base/mutex.h"
#include "base/quiet_thread.h"

namespace gpupool::wire {

std::optional<LinkQuality> LinkQuality::parse(std::string_view text, std::string& error) {
  LinkQuality quality;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    std::uint64_t number = 0;
    const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (bad != std::errc{} || end != value.data() + value.size() || number > 10'000'000 ||
        (key != "delay_us" && key != "mbit")) {
      error = "an emulated network is written delay_us=N,mbit=N";
      return std::nullopt;
    }
    if (key == "mbit") {
      quality.mbit = number;
    } else {
      quality.delay = std::chrono::microseconds(number);
    }
  }
  return quality;
}

DelayLine::DelayLine(LinkQuality quality, std::function<bool(std::span<const std::byte>)> deliver)
    : quality_(quality), deliver_(std::move(deliver)) {
  // Bytes per microsecond times the delay: what a network of this quality holds by itself.
  const std::uint64_t held = quality.mbit * static_cast<std::uint64_t>(quality.delay.count()) / 8;
  room_ = buffers + static_cast<std::size_t>(std::min<std::uint64_t>(held, 256u << 20));
  if (quality.mbit == 0 && quality.delay.count() > 0) room_ = 256u << 20;
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
    const auto some = bytes.first(std::min(bytes.size(), piece));
    bytes = bytes.subspan(some.size());
    free_at_ = std::max(free_at_, Clock::now());
    if (quality_.mbit > 0) free_at_ += std::chrono::nanoseconds(some.size() * 8000 / quality_.mbit);
    under_way_.push_back({free_at_ + quality_.delay, {some.begin(), some.end()}});
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
    if (const auto due = under_way_.front().due; Clock::now() < due) {
      changed_.wait_until(mutex_, due);
      continue;
    }
    Piece next = std::move(under_way_.front());
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
