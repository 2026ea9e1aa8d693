#include "softgpu/exec/checks/race_detector.h"

#include <algorithm>
#include <bit>

namespace softgpu {
namespace {

constexpr uint32_t warp_threads = 32;
constexpr uint32_t renew_at = 1u << 31;  // stamps begin anew between blocks before they can wrap

}  // namespace

RaceDetector::RaceDetector(uint32_t shared_bytes, uint32_t threads)
    : threads_(threads), bytes_(shared_bytes), last_sync_((threads + warp_threads - 1) / warp_threads) {}

void RaceDetector::reset() {
  objects_.clear();
  std::fill(last_sync_.begin(), last_sync_.end(), WarpSync{});
  synchronise_block();
  if (now_ < renew_at) return;
  std::fill(bytes_.begin(), bytes_.end(), Byte{});
  std::fill(known_.begin(), known_.end(), 0);
  now_ = 1;
  floor_ = 0;
}

bool RaceDetector::ordered(const Mark& before, uint32_t thread) const {
  if (before.stamp <= floor_ || before.thread == thread) return true;
  return !known_.empty() && known_[size_t{thread} * threads_ + before.thread] >= before.stamp;
}

bool RaceDetector::conflicts(const Mark& before, const Access& now) const {
  return before.stamp != 0 && !(before.strong && now.strong) && !ordered(before, now.thread);
}

std::optional<RaceDetector::Race> RaceDetector::access(const Access& access) {
  last_sync_[access.thread / warp_threads].unchanged = false;
  std::optional<Race> found;
  const Mark mark{now_, static_cast<uint16_t>(access.thread), access.strong, access.where};
  for (uint32_t offset = access.offset; offset < access.offset + access.bytes; ++offset) {
    Byte& byte = bytes_[offset];
    auto report = [&](const Mark& before, bool wrote) {
      if (found || !conflicts(before, access)) return;
      found = Race{offset, before.thread, before.where, wrote, before.stamp == now_};
    };
    report(byte.write, true);
    if (access.writes) {
      report(byte.read, false);
      report(byte.other_read, false);
      byte.write = mark;
      byte.read = byte.other_read = Mark{};
    } else {
      if (byte.read.thread != mark.thread) byte.other_read = byte.read;
      byte.read = mark;
    }
  }
  return found;
}

uint32_t* RaceDetector::row(uint32_t thread) {
  if (known_.empty()) known_.resize(size_t{threads_} * threads_);
  return known_.data() + size_t{thread} * threads_;
}

std::vector<uint32_t>& RaceDetector::clock_of(uint64_t object) {
  std::vector<uint32_t>& clock = objects_[object];
  if (clock.empty()) clock.resize(threads_);
  return clock;
}

void RaceDetector::release(uint64_t object, uint32_t thread) {
  std::vector<uint32_t>& clock = clock_of(object);
  const uint32_t* const mine = row(thread);
  for (uint32_t i = 0; i < threads_; ++i) clock[i] = std::max(clock[i], mine[i]);
  clock[thread] = now_;
}

void RaceDetector::acquire(uint64_t object, uint32_t thread) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return;
  last_sync_[thread / warp_threads].unchanged = false;
  uint32_t* const mine = row(thread);
  for (uint32_t i = 0; i < threads_; ++i) mine[i] = std::max(mine[i], found->second[i]);
}

void RaceDetector::synchronise_warp(uint32_t first_thread, uint32_t mask) {
  WarpSync& last = last_sync_[first_thread / warp_threads];
  if (last.unchanged && last.mask == mask) return;
  last = {mask, true};
  joined_.assign(threads_, 0);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t* const mine = row(first_thread + static_cast<uint32_t>(std::countr_zero(rest)));
    for (uint32_t i = 0; i < threads_; ++i) joined_[i] = std::max(joined_[i], mine[i]);
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    joined_[first_thread + static_cast<uint32_t>(std::countr_zero(rest))] = now_;
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    std::copy(joined_.begin(), joined_.end(),
              row(first_thread + static_cast<uint32_t>(std::countr_zero(rest))));
  }
  ++now_;
}

}  // namespace softgpu
