// What loading a program image takes of a device's memory, as far as the image says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gpupool::image {

struct Footprint {
  std::uint64_t bytes = 0;      ///< code, constants and variables
  bool managed_memory = false;  ///< has variables that the driver moves between host and device
};

/// Variables in global and constant memory that PTX text defines; its code is made by the driver, and how
/// long it gets nobody knows before. Never throws; sizes that pass 2^50 bytes count as that.
Footprint ptx_footprint(std::string_view text);

/// Of PTX text, of a cubin, or of the entry of a fat binary that a device of `capability` (80, 90, 120, ...)
/// uses. What cannot be read counts with its own length.
Footprint footprint(std::span<const std::byte> content, unsigned capability);

}  // namespace gpupool::image
