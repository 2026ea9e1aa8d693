// Whether a thread of the program has the stack that compiled kernels want.
#pragma once

namespace softgpu {

// Kernels keep what does not fit in registers there, 32 lanes of each: hundreds of KiB for large ones.
// Threads of the engine have what the system gives, 8 MiB as a rule; those of a program what it chose.
bool has_room_for_kernels();

}  // namespace softgpu
