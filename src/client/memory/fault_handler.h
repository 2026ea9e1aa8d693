// Faults of the program's threads on coherent memory.
//
// The signal handler only hands the address to a thread that serves faults and waits: whatever the faulting
// thread was doing, it may run on a small signal stack and needs no lock of this runtime. Faults elsewhere go
// to the handler that was installed before, which then behaves as if it were alone.
#pragma once

namespace gpupool::client {

/// Installs the handler and starts the thread, once. False when that is impossible.
bool serve_faults();
/// Puts the handler back in front when the program has installed one of its own since.
void keep_serving_faults();

}  // namespace gpupool::client
