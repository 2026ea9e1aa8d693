// Which addresses of this process are free.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gpupool::client {

/// Whether nothing lies in [begin, end), by the text of /proc/self/maps. A text that is none says no.
bool is_free(std::string_view maps, std::uint64_t begin, std::uint64_t end);

/// The first of `begins` from which on `size` bytes are free here; the first of all if none is, or if this
/// process may not know. What is free now may be taken a moment later, so the caller must look whether it got
/// it.
std::uint64_t first_free(std::span<const std::uint64_t> begins, std::uint64_t size);

}  // namespace gpupool::client
