// Says beside the session file which process uses its devices, for monitors that list processes.
#pragma once

#include <cstdint>
#include <optional>

namespace gpupool::process_mark {

/// When a process began, in clock ticks since boot; nothing when there is none of this number.
std::optional<std::uint64_t> start_ticks(unsigned pid);

/// Writes `<session file>.process`. A mark that cannot be written is left out: nothing depends on it.
void mark_process();

}  // namespace gpupool::process_mark
