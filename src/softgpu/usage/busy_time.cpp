#include "softgpu/usage/busy_time.h"

#include <algorithm>

namespace softgpu::usage {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// Readers see what is written between construction and destruction whole or not at all.
class Writing {
 public:
  explicit Writing(CardUsage& card) : card_(card) {
    card_.sequence.store(card_.sequence.load(relaxed) + 1, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~Writing() { card_.sequence.store(card_.sequence.load(relaxed) + 1, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  CardUsage& card_;
};

void keep(CardUsage& card, std::int64_t at) {
  const std::uint32_t next = card.next_sample.load(relaxed) % sample_count;
  card.samples[next].at.store(at, relaxed);
  card.samples[next].busy.store(card.busy.load(relaxed), relaxed);
  card.next_sample.store((next + 1) % sample_count, relaxed);
}

// Keeps a point of the curve, unless the last one is young.
void take_sample(CardUsage& card, std::int64_t now) {
  const std::uint32_t next = card.next_sample.load(relaxed) % sample_count;
  const std::int64_t last = card.samples[(next + sample_count - 1) % sample_count].at.load(relaxed);
  if (last == 0 || now - last >= sample_ns) keep(card, now);
}

// How long kernels had run until `when`.
std::int64_t busy_until(const BusyHistory& history, std::int64_t when) {
  // From the last kernel's beginning (or end) on the curve is known exactly.
  if (history.busy_since != 0 && when >= history.busy_since)
    return history.busy + (when - history.busy_since);
  BusyHistory::Point before{0, 0}, after{0, 0};
  for (const auto& point : history.points) {
    if (point.at == 0) continue;
    if (point.at <= when && point.at >= before.at) before = point;
    if (point.at > when && (after.at == 0 || point.at < after.at)) after = point;
  }
  if (after.at == 0) {
    // Behind the last point at most the time since then was busy, and at most what has been added since.
    return before.at == 0 ? history.busy : std::min(history.busy, before.busy + (when - before.at));
  }
  if (before.at == 0) return std::max<std::int64_t>(0, after.busy - (after.at - when));
  const double part = static_cast<double>(when - before.at) / static_cast<double>(after.at - before.at);
  return before.busy + static_cast<std::int64_t>(part * static_cast<double>(after.busy - before.busy));
}

}  // namespace

void begin_busy(CardUsage& card, std::int64_t now) {
  const Writing writing(card);
  // Where a long pause began is a point of its own: between two points the curve is taken for a straight
  // line.
  const std::int64_t idle_since = card.idle_since.load(relaxed);
  if (idle_since != 0 && now - idle_since >= sample_ns) keep(card, idle_since);
  take_sample(card, now);
  card.busy_since.store(now, relaxed);
}

void end_busy(CardUsage& card, std::int64_t now) {
  const Writing writing(card);
  const std::int64_t since = card.busy_since.load(relaxed);
  card.busy.store(card.busy.load(relaxed) + std::max<std::int64_t>(0, now - since), relaxed);
  card.busy_since.store(0, relaxed);
  card.idle_since.store(now, relaxed);
  take_sample(card, now);
}

std::optional<BusyHistory> read_history(const CardUsage& card) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::uint32_t before = card.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    BusyHistory history;
    for (std::size_t n = 0; n < sample_count; ++n)
      history.points[n] = {card.samples[n].at.load(relaxed), card.samples[n].busy.load(relaxed)};
    history.busy = card.busy.load(relaxed);
    history.busy_since = card.busy_since.load(relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (card.sequence.load(relaxed) == before) return history;
  }
  return std::nullopt;
}

std::int64_t busy_between(const BusyHistory& history, std::int64_t from, std::int64_t to) {
  return std::clamp<std::int64_t>(busy_until(history, to) - busy_until(history, from), 0, to - from);
}

}  // namespace softgpu::usage
