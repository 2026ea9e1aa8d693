// Reads the first frame of a connection and decides whether its sender may talk to this worker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/frame.h"
#include "wire/hello.h"

namespace gpupool::worker {

/// Whether both are equal, in time that does not depend on where they differ.
[[nodiscard]] bool equal_secrets(std::span<const std::uint8_t> left,
                                 std::span<const std::uint8_t> right) noexcept;

/// One connection before it is authenticated. No I/O: the caller reads at most `wanted()` bytes and feeds
/// them, so that not one byte behind the HELLO frame is taken from the conversation.
class Handshake {
 public:
  enum class State { reading, accepted, refused };

  using Secret = std::array<std::uint8_t, 32>;

  /// A client shows `token`; another worker, which comes for the session, shows `move_key`.
  Handshake(const Secret& token, const std::optional<Secret>& move_key,
            const std::array<std::uint8_t, 16>& session)
      : token_(token), move_key_(move_key), session_(session) {}

  [[nodiscard]] State state() const { return state_; }
  /// How many bytes to read next; 0 when decided. In all never more than wire::max_frame_before_hello.
  [[nodiscard]] std::size_t wanted() const { return state_ == State::reading ? goal_ - received_.size() : 0; }
  /// At most `wanted()` bytes; more are a refusal.
  State feed(std::span<const std::byte> bytes);

  /// The first frame, header and body; complete once accepted.
  [[nodiscard]] const std::vector<std::byte>& frame() const { return received_; }
  /// What the connection is for, by its first frame (wire::at_door). Valid once accepted.
  [[nodiscard]] wire::Control purpose() const { return purpose_; }
  /// The client's process id on its own machine; valid once accepted.
  [[nodiscard]] std::uint64_t pid() const { return pid_; }
  /// The number of this connection among those of its process; 0 for a first one, whose process may have the
  /// id of an earlier one. Valid once accepted.
  [[nodiscard]] std::uint64_t connection() const { return connection_; }

 private:
  void read_header();
  void read_body();
  [[nodiscard]] bool knows_secret(const wire::HelloBody& body) const;

  Secret token_;
  std::optional<Secret> move_key_;
  std::array<std::uint8_t, 16> session_;
  std::vector<std::byte> received_;
  std::size_t goal_ = sizeof(wire::FrameHeader);
  bool header_read_ = false;
  wire::Control purpose_ = wire::Control::hello;
  std::uint64_t pid_ = 0;
  std::uint64_t connection_ = 0;
  State state_ = State::reading;
};

}  // namespace gpupool::worker
