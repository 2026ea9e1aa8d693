// Where the chunks of a session image come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/image/session_image.h"

namespace gpupool::worker {

class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  /// The chunks that will be read, in this order and each once.
  virtual void announce(const std::vector<std::uint32_t>& numbers) = 0;
  /// Fills `into`, which has the size of the chunk. Throws std::runtime_error. The bytes are not to be
  /// believed: the reader compares the digest.
  virtual void read(const SessionImage::Chunk& chunk, std::uint32_t number, std::span<std::byte> into) = 0;
};

}  // namespace gpupool::worker
