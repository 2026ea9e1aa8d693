#include "worker/lease/handshake.h"

#include <algorithm>

namespace gpupool::worker {

bool equal_secrets(std::span<const std::uint8_t> left, std::span<const std::uint8_t> right) noexcept {
  if (left.size() != right.size()) return false;
  volatile std::uint8_t difference = 0;  // volatile: the loop must not be cut short
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference = static_cast<std::uint8_t>(difference | (left[i] ^ right[i]));
  }
  return difference == 0;
}

Handshake::State Handshake::feed(std::span<const std::byte> bytes) {
  if (state_ != State::reading || bytes.size() > wanted()) return state_ = State::refused;
  received_.insert(received_.end(), bytes.begin(), bytes.end());
  if (received_.size() < goal_) return state_;
  if (header_read_) {
    read_body();
  } else {
    read_header();
  }
  return state_;
}

void Handshake::read_header() {
  wire::FrameHeader header{};
  const bool read = wire::read_front(received_, header);
  const auto purpose = static_cast<wire::Control>(header.message);
  if (!read || !wire::valid(header, wire::max_frame_before_hello) || !wire::at_door(purpose) ||
      (header.flags & (wire::flag_reply | wire::flag_bulk)) != 0 ||
      header.length < sizeof(wire::FrameHeader) + sizeof(wire::HelloBody)) {
    state_ = State::refused;
    return;
  }
  purpose_ = purpose;
  header_read_ = true;
  goal_ = header.length;
}

bool Handshake::knows_secret(const wire::HelloBody& body) const {
  if (purpose_ != wire::Control::session) return equal_secrets(body.token, token_);
  return move_key_ && equal_secrets(body.token, *move_key_);
}

void Handshake::read_body() {
  wire::HelloBody body{};
  const auto rest = std::span<const std::byte>(received_).subspan(sizeof(wire::FrameHeader));
  // The secret is compared before anything else is looked at: a stranger learns nothing from what follows.
  if (!wire::read_front(rest, body) || !knows_secret(body) || body.magic != wire::hello_magic ||
      body.version != wire::protocol_version || body.session != session_) {
    state_ = State::refused;
    return;
  }
  pid_ = body.pid;
  connection_ = body.sent != 0 ? body.connection : 0;
  state_ = State::accepted;
}

}  // namespace gpupool::worker
