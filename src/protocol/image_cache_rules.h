// What both ends agree on about the cache of module images on the node.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpupool {

/// Smaller images travel with their bytes: a question would cost more than it saves.
inline constexpr std::size_t min_cached_image = 4 << 10;

/// Whether the bytes that a digest stands for were there.
enum class CacheAnswer : std::uint8_t {
  found = 0,     ///< the call was executed, its result is that of the reply
  missing = 1,   ///< nothing was done: send the bytes
  no_cache = 2,  ///< the same, and asking again is of no use
};

}  // namespace gpupool
