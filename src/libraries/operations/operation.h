// An operation: what one execution of a math library's function is, as its client library and the driver (or
// the worker beside NVIDIA's) both know it.
//
// It travels as the launch of a kernel: `name` is the entry, the struct its only parameter. So streams,
// graphs, capture, parking, quotas and retries treat it like any other kernel. The software GPU has the
// entries built in (their PTX calls one function of the engine); a GPU would trap, so a worker beside a real
// one gives them to NVIDIA's library instead.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace gpupool::operations {

/// CUDA takes so many bytes of parameters from every kernel.
inline constexpr std::size_t max_bytes = 4096;

/// `parts()`: into how many pieces of some milliseconds it can be divided, whatever its bytes are. Between
/// two of them the device may stand still or take the work's end.
template <class O>
concept Operation = std::is_trivially_copyable_v<O> && std::is_standard_layout_v<O> &&
                    sizeof(O) <= max_bytes && alignof(O) <= 8 && requires(const O& operation) {
                      { O::name } -> std::convertible_to<const char*>;
                      { operation.parts() } -> std::same_as<std::uint64_t>;
                    };

/// More blocks than this only cost time: each does several parts.
inline constexpr std::uint64_t max_blocks = 1024;

/// Sizes and distances beyond this are refused: their products would leave 64 bits.
inline constexpr std::int64_t max_size = std::int64_t{1} << 40;

/// Whether these are sizes that can be computed with.
constexpr bool are_sizes(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > max_size) return false;
  }
  return true;
}

/// The product of numbers of parts, at most 2^62.
constexpr std::uint64_t parts_of(std::initializer_list<std::int64_t> counts) {
  constexpr auto most = std::uint64_t{1} << 62;
  std::uint64_t parts = 1;
  for (const std::int64_t count : counts) {
    if (count <= 0) return 0;
    if (__builtin_mul_overflow(parts, static_cast<std::uint64_t>(count), &parts) || parts > most) return most;
  }
  return parts;
}

/// The image that holds the entries of all operations: PTX.
const std::string& image();

}  // namespace gpupool::operations
