// How much may be under way without an answer. Both ends count by the same rules, so that neither ever waits
// for memory while the other waits for it.
#pragma once

#include <cstddef>

namespace gpupool::wire {

/// An asynchronous copy to the host travels in pieces of at most this size.
inline constexpr std::size_t largest_piece = 4 << 20;
inline constexpr std::size_t small_piece = 64 << 10;
/// Pieces that have been asked for and have not arrived.
inline constexpr std::size_t large_pieces = 15;
inline constexpr std::size_t small_pieces = largest_piece / small_piece;

/// Streams and events whose completion is to be told and has not been told.
inline constexpr std::size_t watches = 4096;

}  // namespace gpupool::wire
