// What a worker answers at its door to Control::inquire, after the ReplyHeader.
#pragma once

#include <cstdint>
#include <string>

#include "wire/bytes.h"

namespace gpupool::wire {

/// What a session's devices are doing.
enum class WorkState : std::uint8_t {
  none,      ///< nothing that is known to run
  running,   ///< under a lease
  draining,  ///< the lease has ended, and the work has a moment to finish
  stopped    ///< between two instructions; it goes on under the next lease
};

struct Inquiry {
  static constexpr std::size_t longest_name = 80;

  WorkState state = WorkState::none;
  bool awaits_turn = false;        ///< a call waits until other sessions' work leaves the device
  std::int32_t failure = 0;        ///< CUresult of the error that the session cannot be used after; 0: none
  std::uint64_t milliseconds = 0;  ///< since when it is so; 0 with `none`
  std::string kernel;              ///< short name; empty: a copy, a fill, or not known
  std::string failed_kernel;

  void encode(Writer& out) const {
    out.put(static_cast<std::uint8_t>(state));
    out.put(static_cast<std::uint8_t>(awaits_turn ? 1 : 0));
    out.put(failure);
    out.put(milliseconds);
    out.put_text(kernel.substr(0, longest_name));
    out.put_text(failed_kernel.substr(0, longest_name));
  }
  [[nodiscard]] static bool decode(Reader& in, Inquiry& out) {
    const auto state = in.get<std::uint8_t>(), turn = in.get<std::uint8_t>();
    out.failure = in.get<std::int32_t>();
    out.milliseconds = in.get<std::uint64_t>();
    const auto kernel = in.get_text(), failed = in.get_text();
    if (!in.finished() || state > static_cast<std::uint8_t>(WorkState::stopped) || turn > 1) return false;
    if (kernel.size() > longest_name || failed.size() > longest_name) return false;
    out.state = static_cast<WorkState>(state);
    out.awaits_turn = turn != 0;
    out.kernel = kernel;
    out.failed_kernel = failed;
    return true;
  }
};

}  // namespace gpupool::wire
