// How many bytes of plain elements one message carries in a field.
#pragma once

#include <cstddef>

namespace gpupool::wire {

/// Of one array parameter. Keeps a reply far below max_frame, and a hostile count from being allocated.
inline constexpr std::size_t max_array_bytes = std::size_t{4} << 20;

template <class T>
constexpr bool array_fits(std::size_t count) {
  return count <= max_array_bytes / sizeof(T);
}

}  // namespace gpupool::wire
