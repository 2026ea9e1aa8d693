// How often a line is written that a stranger may cause.
#pragma once

#include <cstdint>
#include <optional>

namespace gpupool::worker {

/// At most one line a second; the next one tells how many were left out. Whoever can open connections could
/// fill the disk otherwise. Time is passed in; not thread-safe.
class LineLimit {
 public:
  static constexpr std::int64_t interval_ns = 1'000'000'000;

  /// How many lines were left out before this one, which may be written; empty: it is left out too.
  [[nodiscard]] std::optional<std::uint64_t> admit(std::int64_t now_ns) {
    if (now_ns < next_ns_) {
      ++left_out_;
      return std::nullopt;
    }
    next_ns_ = now_ns + interval_ns;
    const std::uint64_t before = left_out_;
    left_out_ = 0;
    return before;
  }

 private:
  std::int64_t next_ns_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace gpupool::worker
