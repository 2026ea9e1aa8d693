// What lies at, or next to, an address that a kernel may not use: for the text of its fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace softgpu::driver {

// One clause, for example "this is 12 bytes behind the end of the 400 bytes at 0x7f.. from cuMemAlloc".
std::string describe_neighbours(std::uint64_t address, std::size_t size);

}  // namespace softgpu::driver
