// Writes a kernel file (kernel_file.h).
#pragma once

#include <istream>
#include <string>

namespace softgpu::packs {

// Reads frames, each a line `SIZE NAME NAME ...` (of its kernels and variables) and SIZE bytes of PTX, and
// writes them to `path`, whole or not at all. Returns what is wrong: with the input, or with the file, which
// cannot be written. Empty if all is well.
std::string write_kernels(std::istream& frames, const std::string& path);

}  // namespace softgpu::packs
