// What was sent and may have to be sent again: kept until the worker says that it has executed it. Pure:
// knows no stream and no clock.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"

namespace gpupool::client {

/// The buffers that were sent, not copies of them. Not thread-safe.
class RetainedFrames {
 public:
  struct Chunk {
    wire::Buffer frames;     ///< whole frames, each with its payload but perhaps the last
    std::uint64_t last = 0;  ///< number of the last frame
    /// Payload of the last frame that is not in `frames`: in the memory of a caller that stays until the
    /// frame is acknowledged, or in `copy`.
    const iovec* payload = nullptr;
    int payload_parts = 0;
    std::uint64_t payload_bytes = 0;
    wire::Buffer copy;
    iovec copied{};
  };

  /// Takes what `frames` holds and leaves an empty buffer in its place. Null when there is no memory: then
  /// `frames` is as it was, and what it holds cannot be sent again.
  Chunk* keep(wire::Buffer& frames, std::uint64_t last) noexcept try {
    Chunk& chunk = chunks_.emplace_back();
    std::swap(chunk.frames, frames);
    chunk.last = last;
    bytes_ += chunk.frames.size();
    if (!spare_.empty()) {
      std::swap(frames, spare_.back());
      spare_.pop_back();
    }
    return &chunk;
  } catch (const std::bad_alloc&) {
    miss(last);
    return nullptr;
  }
  /// What was sent is not kept.
  void miss(std::uint64_t last) { missing_through_ = last; }

  /// The payload of the last frame of the newest chunk, in memory of the caller's, or in `copy`.
  static void refer(Chunk& chunk, const iovec* payload, int parts, std::uint64_t bytes) {
    chunk.payload = payload;
    chunk.payload_parts = parts;
    chunk.payload_bytes = bytes;
  }
  void own(Chunk& chunk, wire::Buffer&& copy) {
    chunk.copy = std::move(copy);
    chunk.copied = {chunk.copy.data(), chunk.copy.size()};
    refer(chunk, &chunk.copied, 1, chunk.copy.size());
    copied_bytes_ += chunk.copy.size();
  }

  /// Lets go what the worker has executed. No chunk may be being sent.
  void acknowledge(std::uint64_t number) {
    while (!chunks_.empty() && chunks_.front().last <= number) {
      Chunk& chunk = chunks_.front();
      bytes_ -= chunk.frames.size();
      copied_bytes_ -= chunk.copy.size();
      recycle(chunk.frames);
      chunks_.pop_front();
    }
  }

  /// Whether everything behind `number` is here.
  [[nodiscard]] bool complete_after(std::uint64_t number) const { return number >= missing_through_; }
  /// The first chunk with a frame behind `number`; null when there is none.
  [[nodiscard]] Chunk* after(std::uint64_t number) {
    const auto found =
        std::find_if(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) { return chunk.last > number; });
    return found == chunks_.end() ? nullptr : &*found;
  }
  /// Where in the chunk the first frame behind `number` begins.
  [[nodiscard]] static std::size_t begin_after(const Chunk& chunk, std::uint64_t number) {
    const auto bytes = chunk.frames.bytes();
    std::size_t at = 0;
    wire::FrameHeader header{};
    while (wire::read_front(bytes.subspan(at), header) && header.sequence <= number) {
      std::size_t next = at + header.length;
      std::uint64_t payload = 0;
      if ((header.flags & wire::flag_bulk) != 0 && next < bytes.size()) {
        std::memcpy(&payload, bytes.data() + next - sizeof(payload), sizeof(payload));
      }
      at = std::min(bytes.size(), next + static_cast<std::size_t>(payload));
    }
    return at;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_; }
  [[nodiscard]] bool empty() const { return chunks_.empty(); }

 private:
  static constexpr std::size_t most_spare = 8, largest_spare = 512 << 10;

  void recycle(wire::Buffer& frames) noexcept try {
    if (spare_.size() >= most_spare || frames.size() > largest_spare) return;
    frames.clear();
    spare_.push_back(std::move(frames));
  } catch (const std::bad_alloc&) {  // it is freed
  }

  std::deque<Chunk> chunks_;  // a chunk stays where it is while others come and go
  std::vector<wire::Buffer> spare_;
  std::size_t bytes_ = 0;
  std::uint64_t copied_bytes_ = 0;
  std::uint64_t missing_through_ = 0;
};

}  // namespace gpupool::client
