// Makes the process what a worker must be before it touches anything else.
#pragma once

namespace gpupool::worker {

/// Own process group (so that a signal to the agent's group does not reach it), no new privileges, no core
/// dumps (they would hold tokens and user data), no inherited file descriptors, SIGPIPE and SIGHUP ignored,
/// SIGTERM and SIGINT blocked (the control thread reads them). Returns a private copy of stdout; stdout
/// itself becomes stderr, because drivers print to it and nobody reads the agent's pipe after the ready line.
/// Throws std::runtime_error.
[[nodiscard]] int set_up_process();

/// stdin has been read: point it at /dev/null.
void release_stdin() noexcept;

}  // namespace gpupool::worker
