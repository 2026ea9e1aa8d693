// Array parameters from the wire, every length checked before it is used.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "wire/elements.h"
#include "worker/objects/handle_table.h"

namespace gpupool::worker {

/// False unless `bytes` are exactly `count` elements.
template <class T>
  requires(std::is_trivially_copyable_v<T>)
[[nodiscard]] bool take_elements(std::span<const std::byte> bytes, std::size_t count, std::vector<T>& out) {
  if (!wire::array_fits<T>(count) || bytes.size() != count * sizeof(T)) return false;
  out.resize(count);
  if (count != 0) std::memcpy(out.data(), bytes.data(), bytes.size());
  return true;
}

/// Zeroed elements for the driver to fill; false when a message could not carry them.
template <class T>
[[nodiscard]] bool make_elements(std::size_t count, std::vector<T>& out) {
  if (!wire::array_fits<T>(count)) return false;
  out.assign(count, T{});
  return true;
}

/// The driver's handles for `count` of the client's. False for a wrong length or an unknown handle.
template <class T>
[[nodiscard]] bool find_elements(const HandleTable& handles, wire::Kind kind,
                                 std::span<const std::byte> bytes, std::size_t count, std::vector<T>& out) {
  std::vector<std::uint64_t> values;
  if (!take_elements(bytes, count, values)) return false;
  out.resize(count);
  for (std::size_t n = 0; n < count; ++n) {
    if (!handles.find(kind, values[n], out[n])) return false;
  }
  return true;
}

}  // namespace gpupool::worker
