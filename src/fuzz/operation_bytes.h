// An operation of a math library as an input of the fuzzer: its number, which part is done, its bytes. A word
// whose upper half is `address_mark` is an address in the device's memory, so many bytes behind its
// beginning.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpupool::fuzz {

inline constexpr std::uint64_t address_mark = 0xA5A5'0000'0000'0000;
inline constexpr std::uint64_t mark_bits = 0xFFFF'0000'0000'0000;
inline constexpr std::size_t operation_memory = 1 << 16;

}  // namespace gpupool::fuzz
