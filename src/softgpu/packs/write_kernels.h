// Writes a kernel file (kernel_file.h).
#pragma once

namespace softgpu::packs {

// Reads frames from standard input, each a line `SIZE NAME NAME ...` (of its kernels and variables) and SIZE bytes of PTX, and writes
// them to `path`, whole or not at all. Returns the exit status: 1, with a line on stderr, for bad input or a file that cannot be
// written.
int write_kernels(const char* path);

}  // namespace softgpu::packs
