// Learns at once that the share was given back from outside: while nobody asks the worker anything, only the
// session file tells, and what is sent under a lease that is over is lost.
#pragma once

namespace gpupool::client {

/// From now on, in a thread of its own; later calls change nothing. Without it a call finds out by being
/// refused.
void watch_session_file();

}  // namespace gpupool::client
