// The part of a fat binary that certain devices can use: programs carry machine code for every architecture
// there is, and only one kind of it is worth sending over a network.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gpupool::image {

/// A fat binary without the machine code of another major version than those of `capabilities` (80, 90, 120,
/// ...): a driver could not use it. Empty when there is nothing to leave out, when nothing would be left, or
/// when `fatbin` is not well formed to its end.
std::vector<std::byte> entries_for(std::span<const std::byte> fatbin, std::span<const unsigned> capabilities);

}  // namespace gpupool::image
