// The frames of the data plane: fixed little-endian headers, followed by packed fields (see bytes.h).
//
// A frame is header + body, at most max_frame bytes. With the flag `bulk`, the LAST eight bytes of the body
// are a u64 length n, and n payload bytes follow the frame on the stream; they are not counted in
// FrameHeader::length.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "generated/wire/control_ids.h"

namespace gpupool::wire {

static_assert(std::endian::native == std::endian::little,
              "fields travel as they lie in memory: little endian");

inline constexpr std::uint32_t max_frame = 64u << 20;
inline constexpr std::uint32_t max_frame_before_hello = 4096;

inline constexpr std::uint16_t first_call = 64;
/// Bit of the token of a host function that is called once.
inline constexpr std::uint64_t once_only = std::uint64_t{1} << 63;

/// Bits of FrameHeader::flags.
inline constexpr std::uint16_t flag_ask = 1;  ///< the sender waits for a reply with the same sequence number
inline constexpr std::uint16_t flag_reply = 2;  ///< ReplyHeader follows the frame header; from the worker and
                                                ///< without it: a push, which answers nothing
inline constexpr std::uint16_t flag_bulk = 4;   ///< payload follows the frame

struct FrameHeader {
  std::uint32_t length;  ///< whole frame, this header included
  std::uint16_t message;
  std::uint16_t flags;
  std::uint32_t epoch;  ///< lease epoch the call is made under
  std::uint32_t lane;
  /// +1 per frame of a session, whatever connection carries it; of a reply: that of the ask; of a push: its
  /// own number, also +1 each. 0: neither numbered nor ever sent again.
  std::uint64_t sequence;
};
static_assert(sizeof(FrameHeader) == 24);

enum class Status : std::uint32_t {
  ok = 0,
  not_attached = 1,
  past_epoch = 2,
  fenced = 3,
  closed = 4,
  unknown = 5,  ///< to HELLO: what the client wants to go on with is not known here
};

/// First part of the body of every reply.
struct ReplyHeader {
  std::int32_t result;             ///< CUresult of the call itself
  std::int32_t deferred_error;     ///< CUresult of the first post that failed since the last reply; 0 = none
  std::uint32_t deferred_message;  ///< message number of that post
  Status status;                   ///< not ok: the call was not executed
};
static_assert(sizeof(ReplyHeader) == 16);

/// Whether a header just read is acceptable. `limit` is max_frame or max_frame_before_hello.
[[nodiscard]] constexpr bool valid(const FrameHeader& header, std::uint32_t limit = max_frame) {
  if (header.length < sizeof(FrameHeader) || header.length > limit) return false;
  const bool reply = (header.flags & flag_reply) != 0;
  const bool bulk = (header.flags & flag_bulk) != 0;
  std::size_t least =
      sizeof(FrameHeader) + (reply ? sizeof(ReplyHeader) : 0) + (bulk ? sizeof(std::uint64_t) : 0);
  return header.length >= least && (header.flags & ~(flag_ask | flag_reply | flag_bulk)) == 0;
}

/// Reads a trivially copyable header from the start of `bytes`; false when there are too few.
template <class T>
[[nodiscard]] bool read_front(std::span<const std::byte> bytes, T& out) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&out, bytes.data(), sizeof(T));
  return true;
}

}  // namespace gpupool::wire
