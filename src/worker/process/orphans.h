// Processes that the driver has started and let go of, such as the compiler of the software GPU. Whoever
// loses its parent becomes a child of process 1, and in a container that may be a program that waits for
// none: what is left of the dead would stay until the container ends. This process waits for them instead.
#pragma once

namespace gpupool::worker {

/// From now on they are children of this process.
void adopt_orphans() noexcept;

/// Kills all children of this process and waits for their ends, but not for long: the driver may be stuck.
void end_orphans() noexcept;

}  // namespace gpupool::worker
