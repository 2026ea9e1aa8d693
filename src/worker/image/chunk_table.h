// Which chunks a session image has: pieces of bytes that are kept once, however often they occur, and not at
// all when they are zeros.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "worker/image/session_image.h"

namespace gpupool::worker {

[[nodiscard]] inline bool all_zeros(std::span<const std::byte> bytes) {
  constexpr std::size_t front = 64;
  for (std::size_t n = 0; n < bytes.size() && n < front; ++n) {
    if (bytes[n] != std::byte{0}) return false;
  }
  // Each byte equals the one `front` places before it.
  return bytes.size() <= front || std::memcmp(bytes.data(), bytes.data() + front, bytes.size() - front) == 0;
}

class ChunkTable {
 public:
  /// The number of a piece of at most SessionImage::chunk_bytes. `fresh` tells whether it has not been met
  /// before.
  std::uint32_t add(std::span<const std::byte> piece, bool& fresh) {
    fresh = false;
    if (all_zeros(piece)) return SessionImage::zeros;
    const Digest digest = sha256(piece);
    const auto [found, made] = numbers_.try_emplace(digest, static_cast<std::uint32_t>(chunks_.size()));
    fresh = made;
    if (made) {
      chunks_.push_back({digest, static_cast<std::uint32_t>(piece.size()), bytes_});
      bytes_ += piece.size();
    }
    return found->second;
  }

  /// Each lies where those before it end.
  [[nodiscard]] const std::vector<SessionImage::Chunk>& chunks() const { return chunks_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::map<Digest, std::uint32_t> numbers_;
  std::vector<SessionImage::Chunk> chunks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpupool::worker
