// The frames of the data plane: fixed little-endian headers, followed by packed fields (see bytes.h).
//
// A frame is header + body, at most max_frame bytes. With the flag `bulk`, the LAST eight bytes of the body
// are a u64 length n, and n payload bytes follow the frame on the stream; they are not counted in
// FrameHeader::length.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gpupool::wire {

static_assert(std::endian::native == std::endian::little,
              "fields travel as they lie in memory: little endian");

inline constexpr std::uint32_t max_frame = 64u << 20;
inline constexpr std::uint32_t max_frame_before_hello = 4096;
inline constexpr std::uint32_t hello_magic = 0x4c505047;  // "GPPL"
inline constexpr std::uint32_t protocol_version = 3;

/// Control messages. Numbers from first_call on are the generated calls (generated/message_ids.h).
enum class Control : std::uint16_t {
  hello = 1,
  lease = 2,      ///< ask {}: start to work under the epoch of the frame header -> {}
  drain = 3,      ///< ask {u32 timeout_ms}: finish posted work -> {}
  stats = 4,      ///< ask {u32 reset_peak} -> StatsReply
  goodbye = 5,    ///< post {}: the client leaves on purpose
  output = 6,     ///< worker -> client, unasked, bulk: text that kernels printed; {u8 2}: for standard error
  ping = 7,       ///< ask {} -> {}: for measuring the wire; needs no lease
  completed = 8,  ///< worker -> client, unasked: something watched is complete (completion.h)
  copied = 9,     ///< worker -> client, unasked, bulk: bytes of an asynchronous copy (completion.h)
  host_function =
      10,  ///< worker -> client, unasked {u64 token, u64 run}: a stream has come to a function of the program

  // Of the connection and not of the session: these have the number 0 and are not sent again.
  taken = 11,         ///< post {u64}: the pushes up to this one have been taken in
  repeat = 12,        ///< post {u64 sequence, u32 lane}: an answer that was not received is asked for again
  acknowledged = 13,  ///< worker -> client, unasked {u64}: the frames up to this one have been executed

  charged = 14,  ///< worker -> client, unasked {u32 device, u64 bytes}: of the share, by what the client does
                 ///< not count itself
  /// In place of HELLO, with its body: another worker takes the session over
  /// (worker/moving/session_transfer.h).
  session = 15,
  share_limit = 16,     ///< worker -> client, unasked: ShareLimit (hello.h)
  limit_answered = 17,  ///< post {u32 number}: the limit wished for was taken, or could not be

  // In place of HELLO, with its body; they take no seat, and the connection ends behind the answer.
  inquire = 18,      ///< ask -> Inquiry (inquiry.h): what the session's devices are doing
  end_session = 19,  ///< ask -> {}: the worker's process ends at once, whatever its threads wait for

  /// worker -> client, unasked, before the answer that fails {u32 device, u64 bytes}: there is no room for so
  /// much.
  memory_refused = 20
};
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

/// Body of the first frame of a connection. Reply: ReplyHeader + HelloReply fields (see hello.h, packed).
struct HelloBody {
  std::uint32_t magic;
  std::uint32_t version;
  std::array<std::uint8_t, 32> token;
  std::array<std::uint8_t, 16> session;
  std::uint64_t pid;         ///< of the client process, on its own machine
  std::uint64_t arena_base;  ///< where the client would like the device address arena; 0 = no wish
  // To go on after a broken connection; a first one has zeros in the last two.
  std::uint64_t
      connection;       ///< +1 per connection of this process: an older one never takes the place of a newer
  std::uint64_t sent;   ///< number of the last frame made
  std::uint64_t taken;  ///< number of the last push taken in
};
static_assert(sizeof(HelloBody) == 96);

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
