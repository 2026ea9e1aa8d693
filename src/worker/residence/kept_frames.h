// What a client asked for while the session's memory was away and must not be lost: memory and objects that
// it freed.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace gpupool::worker {

/// The executing thread alone uses it. Bounded by what a client can have to free; a client that frees more
/// waits.
class KeptFrames {
 public:
  static constexpr std::size_t most_frames = 1u << 17;
  static constexpr std::size_t most_bytes = std::size_t{32} << 20;

  struct Frame {
    wire::FrameHeader header;
    std::vector<std::byte> body;
  };

  /// False: no room.
  [[nodiscard]] bool add(const wire::FrameHeader& header, std::span<const std::byte> body) {
    if (frames_.size() >= most_frames || body.size() > most_bytes - bytes_) return false;
    frames_.push_back({header, {body.begin(), body.end()}});
    bytes_ += body.size();
    return true;
  }
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  /// In the order in which they came.
  [[nodiscard]] std::vector<Frame> take() {
    bytes_ = 0;
    return std::exchange(frames_, {});
  }
  void clear() { static_cast<void>(take()); }

 private:
  std::vector<Frame> frames_;
  std::size_t bytes_ = 0;
};

}  // namespace gpupool::worker
