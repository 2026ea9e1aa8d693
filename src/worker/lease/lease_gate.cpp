#include "worker/lease/lease_gate.h"

#include <time.h>

#include <algorithm>

namespace gpupool::worker {

LeaseGate::Record LeaseGate::read() const noexcept {
  for (;;) {
    const std::uint32_t before = sequence_.load(std::memory_order_acquire);
    const Record record{epoch_.load(std::memory_order_relaxed), attached_.load(std::memory_order_relaxed),
                        deadline_ns_.load(std::memory_order_relaxed),
                        unserved_.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if ((before & 1U) == 0 && sequence_.load(std::memory_order_relaxed) == before) return record;
  }
}

void LeaseGate::write(Record record) noexcept {
  const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  epoch_.store(record.epoch, std::memory_order_relaxed);
  attached_.store(record.attached, std::memory_order_relaxed);
  deadline_ns_.store(record.deadline_ns, std::memory_order_relaxed);
  unserved_.store(record.unserved, std::memory_order_relaxed);
  sequence_.store(sequence + 2, std::memory_order_release);
}

LeaseAnswer LeaseGate::begin(std::uint32_t epoch, std::int64_t deadline_ns) {
  const std::lock_guard lock(writers_);
  if (epoch <= read().epoch) return LeaseAnswer::past_epoch;
  write({epoch, true, deadline_ns, true});
  return LeaseAnswer::ok;
}

LeaseAnswer LeaseGate::grant(std::uint32_t epoch, std::int64_t deadline_ns, std::int64_t now_ns) {
  const std::lock_guard lock(writers_);
  const Record current = read();
  if (epoch < current.epoch || epoch == 0) return LeaseAnswer::past_epoch;
  if (epoch == current.epoch) {
    if (!current.attached) return LeaseAnswer::past_epoch;
    if (now_ns >= current.deadline_ns && !current.unserved) return LeaseAnswer::fenced;
    const std::int64_t later_ns = std::max(deadline_ns, current.deadline_ns);
    write({epoch, true, later_ns, current.unserved && now_ns >= later_ns});
    return LeaseAnswer::ok;
  }
  write({epoch, true, deadline_ns});
  return LeaseAnswer::ok;
}

LeaseAnswer LeaseGate::revoke(std::uint32_t epoch) {
  const std::lock_guard lock(writers_);
  const Record current = read();
  if (epoch < current.epoch) return LeaseAnswer::past_epoch;
  write({epoch, false, 0});
  return LeaseAnswer::ok;
}

Admission LeaseGate::admits(std::uint32_t epoch, std::int64_t now_ns) const noexcept {
  const Record current = read();
  if (epoch > current.epoch || epoch == 0) return Admission::not_attached;
  if (epoch < current.epoch || !current.attached) return Admission::past_epoch;
  if (now_ns >= current.deadline_ns) return Admission::fenced;
  if (current.unserved) unserved_.store(false, std::memory_order_relaxed);
  return Admission::ok;
}

LeaseGate::View LeaseGate::view(std::int64_t now_ns) const noexcept {
  const Record current = read();
  const LeaseState state = !current.attached              ? LeaseState::parked
                           : now_ns < current.deadline_ns ? LeaseState::attached
                                                          : LeaseState::fenced;
  return {state, current.epoch, current.deadline_ns, current.unserved};
}

std::int64_t boottime_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gpupool::worker
