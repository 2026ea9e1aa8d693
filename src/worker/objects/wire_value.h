// A handle in a struct of the driver API as the number that travels.
#pragma once

#include <cstdint>
#include <type_traits>

namespace gpupool::worker {

template <class H>
std::uint64_t wire_value(H handle) {
  if constexpr (std::is_pointer_v<H>) {
    return reinterpret_cast<std::uint64_t>(handle);
  } else {
    return static_cast<std::uint64_t>(handle);
  }
}

template <class H>
void set_wire_value(H& handle, std::uint64_t value) {
  if constexpr (std::is_pointer_v<H>) {
    handle = reinterpret_cast<H>(value);
  } else {
    handle = static_cast<H>(value);
  }
}

}  // namespace gpupool::worker
