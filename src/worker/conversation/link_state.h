// What a session knows of the conversation with its client: where it stands, and what was said and may not
// have been heard. It survives a broken connection, and goes with the session to another worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/bytes.h"
#include "worker/conversation/kept_frames.h"

namespace gpupool::worker {

/// Plain data. A worker that takes a session over fills it in before its client comes.
struct LinkState {
  static constexpr std::uint32_t version = 2;
  static constexpr std::size_t max_replies = 65'536;
  static constexpr std::size_t max_pushes = 65'536;
  static constexpr std::size_t max_bytes = std::size_t{512} << 20;  ///< of all that is kept, together

  /// What answers the last ask of a lane, which the client may not have received.
  struct Reply {
    std::uint32_t lane = 0;
    std::uint64_t sequence = 0;  ///< of the ask
    /// A read of device memory is not kept but done again: `bytes` is the ask, to be executed in `context`
    /// (the client's handle). Otherwise the whole frame of the reply, with its payload.
    bool again = false;
    std::uint64_t context = 0;
    std::int32_t deferred_error = 0;  ///< that the answer told, which the next one must tell then
    std::uint32_t deferred_message = 0;
    std::vector<std::byte> bytes;
    bool operator==(const Reply&) const = default;
  };

  /// What was told unasked; `bytes` is the whole frame with its payload.
  struct Push {
    std::uint64_t number = 0;
    std::vector<std::byte> bytes;
    bool operator==(const Push&) const = default;
  };

  std::uint64_t client = 0;         ///< process id of the client on its own machine; 0: none has come yet
  std::uint64_t connection = 0;     ///< number of the client's last connection
  std::uint64_t received = 0;       ///< number of the last frame executed
  std::uint64_t pushed = 0;         ///< number of the last push made
  std::uint64_t context = 0;        ///< the client's handle of the context that its next frame is executed in
  std::int32_t deferred_error = 0;  ///< the first failure of a post that the client has not been told of
  std::uint32_t deferred_message = 0;
  std::vector<Reply> replies;
  std::vector<Push> pushes;     ///< in the order of their numbers
  std::vector<KeptFrame> kept;  ///< received, and to be executed under the next lease, in this order

  bool operator==(const LinkState&) const = default;

  void encode(wire::Writer& out) const {
    out.put(version);
    for (const std::uint64_t value : {client, connection, received, pushed, context}) out.put(value);
    out.put(deferred_error);
    out.put(deferred_message);
    out.put(static_cast<std::uint32_t>(replies.size()));
    for (const Reply& reply : replies) {
      out.put(reply.lane);
      out.put(reply.sequence);
      out.put(static_cast<std::uint8_t>(reply.again));
      out.put(reply.context);
      out.put(reply.deferred_error);
      out.put(reply.deferred_message);
      out.put_bytes(reply.bytes);
    }
    out.put(static_cast<std::uint32_t>(pushes.size()));
    for (const Push& push : pushes) {
      out.put(push.number);
      out.put_bytes(push.bytes);
    }
    out.put(static_cast<std::uint32_t>(kept.size()));
    for (const KeptFrame& frame : kept) {
      out.put(frame.sequence);
      out.put(frame.message);
      out.put(frame.lane);
      out.put_bytes(frame.body);
      out.put_bytes(frame.payload);
    }
  }

  /// False for what encode() does not write. Takes no more memory than `in` has bytes, and a little.
  [[nodiscard]] static bool decode(wire::Reader& in, LinkState& out) {
    if (in.get<std::uint32_t>() != version || in.rest().size() > max_bytes) return false;
    for (std::uint64_t* const value :
         {&out.client, &out.connection, &out.received, &out.pushed, &out.context})
      *value = in.get<std::uint64_t>();
    out.deferred_error = in.get<std::int32_t>();
    out.deferred_message = in.get<std::uint32_t>();
    const auto replies = in.get<std::uint32_t>();
    if (!in.ok() || replies > max_replies) return false;
    for (std::uint32_t n = 0; n < replies; ++n) {
      Reply reply;
      reply.lane = in.get<std::uint32_t>();
      reply.sequence = in.get<std::uint64_t>();
      const auto again = in.get<std::uint8_t>();
      reply.context = in.get<std::uint64_t>();
      reply.deferred_error = in.get<std::int32_t>();
      reply.deferred_message = in.get<std::uint32_t>();
      const auto bytes = in.get_bytes();
      if (!in.ok() || again > 1 || reply.sequence > out.received) return false;
      reply.again = again == 1;
      reply.bytes.assign(bytes.begin(), bytes.end());
      out.replies.push_back(std::move(reply));
    }
    const auto pushes = in.get<std::uint32_t>();
    if (!in.ok() || pushes > max_pushes || pushes > out.pushed) return false;
    for (std::uint32_t n = 0; n < pushes; ++n) {
      Push push;
      push.number = in.get<std::uint64_t>();
      const auto bytes = in.get_bytes();
      // Without gaps up to the last one made.
      if (!in.ok() || push.number != out.pushed - pushes + 1 + n) return false;
      push.bytes.assign(bytes.begin(), bytes.end());
      out.pushes.push_back(std::move(push));
    }
    const auto kept = in.get<std::uint32_t>();
    if (!in.ok() || kept > KeptFrames::most_frames) return false;
    for (std::uint32_t n = 0; n < kept; ++n) {
      KeptFrame frame;
      frame.sequence = in.get<std::uint64_t>();
      frame.message = in.get<std::uint16_t>();
      frame.lane = in.get<std::uint32_t>();
      for (std::vector<std::byte>* const part : {&frame.body, &frame.payload}) {
        const auto bytes = in.get_bytes();
        part->assign(bytes.begin(), bytes.end());
      }
      const std::uint64_t before = out.kept.empty() ? 0 : out.kept.back().sequence;
      if (!in.ok() || frame.sequence <= before || frame.sequence > out.received) return false;
      out.kept.push_back(std::move(frame));
    }
    return in.finished();
  }
};

}  // namespace gpupool::worker
