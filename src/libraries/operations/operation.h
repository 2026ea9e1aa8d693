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
#include <string>
#include <type_traits>

namespace gpupool::operations {

/// CUDA takes so many bytes of parameters from every kernel.
inline constexpr std::size_t max_bytes = 4096;

/// `parts()`: into how many pieces of some milliseconds it can be divided; its grid has no more blocks.
template <class O>
concept Operation = std::is_trivially_copyable_v<O> && std::is_standard_layout_v<O> &&
                    sizeof(O) <= max_bytes && alignof(O) <= 8 && requires(const O& operation) {
                      { O::name } -> std::convertible_to<const char*>;
                      { operation.parts() } -> std::same_as<std::uint64_t>;
                    };

/// More blocks than this only cost time: each does several parts.
inline constexpr std::uint64_t max_blocks = 1024;

/// The image that holds the entries of all operations: PTX.
const std::string& image();

}  // namespace gpupool::operations
