// How busy a card was: the writer's side and the reader's side of one CardUsage. Times are passed in.
#pragma once

#include <cstdint>
#include <optional>

#include "softgpu/usage/usage_record.h"

namespace softgpu::usage {

// One thread at a time; the first kernel of several begins, the last one ends.
void begin_busy(CardUsage& card, std::int64_t now);
void end_busy(CardUsage& card, std::int64_t now);

struct BusyHistory {
  struct Point {
    std::int64_t at, busy;
  };
  std::array<Point, sample_count> points{};  // at 0: none
  std::int64_t busy = 0, busy_since = 0;
};

// Nothing when the writer never stood still for long enough to be read.
[[nodiscard]] std::optional<BusyHistory> read_history(const CardUsage& card);

// Nanoseconds between `from` and `to` (not before the history was read) in which a kernel ran.
[[nodiscard]] std::int64_t busy_between(const BusyHistory& history, std::int64_t from, std::int64_t to);

}  // namespace softgpu::usage
