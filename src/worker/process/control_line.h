// The node agent's commands, one per line, and the worker's lines back. Pure text in, values out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/lease/lease_gate.h"
#include "worker/lease/memory_account.h"
#include "worker/lease/usage.h"
#include "worker/lease/worker_state.h"

namespace gpupool::worker {

struct ShareGrant {
  std::uint32_t ordinal;  ///< as the client counts
  std::uint32_t milli;    ///< 1..1000
  std::uint64_t mib;
};

struct LeaseCommand {
  std::uint32_t epoch = 0;
  std::int64_t deadline_ns = 0;            ///< CLOCK_BOOTTIME
  std::vector<ShareGrant> shares = {};     ///< empty: unchanged (a plain renewal)
  std::vector<DeviceChange> devices = {};  ///< what memory in the host is resumed onto; empty: where it was
};
struct RevokeCommand {
  std::uint32_t epoch = 0;
};
/// The session's memory leaves its devices for the host.
struct ParkCommand {
  std::uint32_t epoch = 0;
};
/// The session's image is written into a folder; the session stays as it is.
struct ExportCommand {
  std::string folder;
};
struct StatsCommand {};
struct StopCommand {};
/// A line that is not a command; `reason` is what to answer.
struct BadCommand {
  std::string reason;
};

using ControlCommand = std::variant<LeaseCommand, RevokeCommand, ParkCommand, ExportCommand, StatsCommand,
                                    StopCommand, BadCommand>;

inline constexpr std::size_t max_control_line = 8192;

/// Never throws; a line that cannot be read gives BadCommand. `line` is without its newline.
[[nodiscard]] ControlCommand parse_control_line(std::string_view line);

struct StatsLine {
  LeaseGate::View lease;
  bool client_connected;
  UsageSnapshot usage;
  std::vector<MemoryAccount::View> memory;  ///< by client ordinal
  MemoryReport place = {};
  Enforcement enforcement = Enforcement::none;
  WorkView work = {};
  SessionFailure failure = {};
  std::int64_t now_ns = 0;  ///< CLOCK_BOOTTIME
};

/// `stats epoch=8 state=attached client=1 ...`, without a newline.
[[nodiscard]] std::string format_stats(const StatsLine& stats);

}  // namespace gpupool::worker
