// Buffered receiving of frames from a stream, with payload taken straight to where it belongs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.h"
#include "wire/transport/stream.h"

namespace gpupool::wire {

/// One reader at a time. Every function that returns false has met the end of the stream, an error or a frame
/// that is not valid; the connection is then useless.
class Receiver {
 public:
  /// `stream` must outlive this.
  explicit Receiver(Stream& stream, std::size_t capacity = 256 << 10) : stream_(stream), buffer_(capacity) {}

  /// Whether a whole frame (without payload) lies in the buffer: the next receive() will not block.
  [[nodiscard]] bool has_frame() const;

  /// Blocks for the next frame. `body` is valid until the next call of any function.
  [[nodiscard]] bool receive(FrameHeader& header, std::span<const std::byte>& body);

  /// Takes exactly `size` payload bytes into `into`: what is buffered is copied, the rest received in place.
  [[nodiscard]] bool take(void* into, std::size_t size);

  /// Throws `size` payload bytes away.
  [[nodiscard]] bool skip(std::uint64_t size);

  /// Whether the stream has ended: a failure was no fault of what the peer said.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }
  [[nodiscard]] bool fill(std::size_t least);

  Stream& stream_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
};

}  // namespace gpupool::wire
