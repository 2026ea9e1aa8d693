// The client runtime's own messages: warnings only, to the file that the session file names or to stderr.
#pragma once

#include <string>
#include <string_view>

namespace gpupool::client {

/// One line. Never a token, never file contents.
void log_line(std::string_view text);
/// One line, where a file is named: on standard error it would stand among what the program writes.
void log_to_file(std::string_view text);
/// One line, if the environment says GPUPOOL_DEBUG=1.
void log_debug(std::string_view text);
/// Where lines go from now on; empty means stderr.
void log_to(const std::string& path);

/// Why a call was refused: one line. Where this process says by GPUPOOL_REFUSALS_TOLD_BY that it tells its
/// user itself, the main thread's last one is kept for it instead. `told`: the user has read it already, from
/// the command that runs this process, so that a process that says nothing itself says nothing here either.
void tell_refusal(std::string_view text, bool told = false);
/// While one lives, refusals of this thread's calls are told by the caller alone, who reads
/// gpupool_last_message().
class CallerTellsRefusals {
 public:
  CallerTellsRefusals();
  ~CallerTellsRefusals();
  CallerTellsRefusals(const CallerTellsRefusals&) = delete;
  CallerTellsRefusals& operator=(const CallerTellsRefusals&) = delete;
};
/// The one that is kept, once; empty: none. Main thread only.
const char* take_refusal();

/// Reason of the last refused call on this thread, for gpupool_last_message().
void remember(std::string text);
const char* last_message();

}  // namespace gpupool::client
