// How long an ELF file in memory is: CUDA's interface passes a pointer without a length.
#pragma once

#include <cstddef>

namespace gpupool::image {

/// The end of what the file's own headers name; believes them, because there is nothing else to go by.
std::size_t elf_size(const void* start);

}  // namespace gpupool::image
