// What the holder of the share wrote about its use, for processes that have not loaded the client runtime:
// monitors that were started beside the program.
//
// `<session file>.usage` is written every few seconds by who holds the lease: text, one `key value` per line.
// `<session file>.process` is written by the client runtime when it connects: `pid start_ticks`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace gpupool::nvml {

struct SessionUsage {
  std::int64_t time_ns = 0;                ///< CLOCK_BOOTTIME of the report
  double busy = 0;                         ///< part of the seconds before the report, 0..1
  std::vector<std::uint64_t> memory_used;  ///< bytes by ordinal
};

/// Nothing when it is not such a text.
[[nodiscard]] std::optional<SessionUsage> parse_usage(std::string_view text);

/// The newest report of this process's session; nothing when it is missing or older than half a minute.
[[nodiscard]] std::optional<SessionUsage> read_session_usage();

struct SessionProcess {
  unsigned pid = 0;
  std::uint64_t start_ticks = 0;  ///< since boot: tells it from a later process of this number
};

[[nodiscard]] std::optional<SessionProcess> parse_process(std::string_view text);

/// The process that uses the session's devices, if it lives.
[[nodiscard]] std::optional<unsigned> session_process();

}  // namespace gpupool::nvml
