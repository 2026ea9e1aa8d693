// Posts that have come and can't be executed yet: the session's memory is away, or there is no lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace gpupool::worker {

/// A post as it came, with what it carried. Plain data.
struct KeptFrame {
  std::uint64_t sequence = 0;
  std::uint16_t message = 0;
  std::uint32_t lane = 0;
  std::vector<std::byte> body, payload;
  bool operator==(const KeptFrame&) const = default;

  [[nodiscard]] std::size_t bytes() const { return body.size() + payload.size(); }
};

/// In the order in which they came. Only the executing thread uses it. A client sends little before it hears
/// that it has no lease, so the bounds are for a client that doesn't listen.
class KeptFrames {
 public:
  static constexpr std::size_t most_frames = 1u << 17;
  static constexpr std::size_t most_bytes = std::size_t{256} << 20;

  [[nodiscard]] bool has_room(std::uint64_t bytes) const {
    return frames_.size() < most_frames && bytes <= most_bytes - bytes_;
  }
  /// Precondition: there is room.
  void add(KeptFrame frame) {
    bytes_ += frame.bytes();
    frames_.push_back(std::move(frame));
  }
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  [[nodiscard]] const KeptFrame& first() const { return frames_.front(); }
  void drop_first() {
    bytes_ -= frames_.front().bytes();
    frames_.pop_front();
  }
  [[nodiscard]] const std::deque<KeptFrame>& all() const { return frames_; }
  void clear() {
    frames_.clear();
    bytes_ = 0;
  }

 private:
  std::deque<KeptFrame> frames_;
  std::size_t bytes_ = 0;
};

}  // namespace gpupool::worker
