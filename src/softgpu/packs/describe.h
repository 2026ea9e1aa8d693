// What a shared library holds for GPUs, on standard output.
#pragma once

namespace softgpu::packs {

// Prints `{"build_id": ...}`, then for each fat binary `{"has_ptx", "digests", "kernels", "variables"}`: the
// digests of its machine code (SHA-256 of each entry as stored), and its kernels with [offset, size] of each
// parameter in bytes. Returns the exit status: 1, with a line on stderr, if the library cannot be read.
int describe_library(const char* path);

// Prints for each fat binary that has PTX a line with its size in bytes, and that PTX: of the lowest
// architecture. Returns as above.
int print_texts(const char* path);

}  // namespace softgpu::packs
