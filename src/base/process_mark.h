// Says beside the session file which process uses its devices, for monitors that list processes, and what
// else the holder of the share is to know of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gpupool::process_mark {

/// When a process began, in clock ticks since boot; nothing when there is none of this number.
std::optional<std::uint64_t> start_ticks(unsigned pid);

/// Writes `<session file>.process`. A mark that cannot be written is left out: nothing depends on it.
void mark_process();

/// The same for `<session file><suffix>`, which is replaced as a whole. One thread at a time for a suffix.
void write_beside_session(const char* suffix, std::string_view text);
void remove_beside_session(const char* suffix);

}  // namespace gpupool::process_mark
