// The way out to a client, shared by all threads that have something to say to it. It outlives connections:
// what a client may not have received is kept, and said again on the next one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/transport/stream.h"
#include "worker/conversation/link_state.h"

namespace gpupool::worker {

/// Bytes that follow a frame. `send` returns false when the connection is lost or the data could not be
/// produced; the connection is then closed, because the announced bytes cannot be taken back.
struct Payload {
  std::uint64_t size = 0;
  const std::byte* memory = nullptr;  ///< the bytes themselves, where they can be sent as they lie; else null
  std::function<bool(wire::Stream&)> send;  ///< used when `memory` is null
};

/// How a reply is kept until its lane asks again, which says that it was received.
struct ReplyKeeping {
  bool again = false;                   ///< not kept: `ask` is executed again, in `context` (client's handle)
  std::span<const std::byte> ask = {};  ///< the whole frame
  std::uint64_t context = 0;
};

/// Frames go out whole, one after the other: a lock is held while one is sent, however long the client takes.
/// After a failure the stream is shut down, so that the reader learns of it; what is said then is
/// kept.
class Outlet {
 public:
  /// A conversation begins (`taken` 0) or goes on. Sends what `greeting(last push)` makes, then the pushes
  /// behind `taken`. False: pushes are missing that the client has not taken, and nothing was sent.
  bool open(wire::Stream& stream, std::uint64_t taken,
            const std::function<wire::Buffer(std::uint64_t pushed)>& greeting);
  /// The stream is about to end: nothing is sent any more, all is kept. The stream must have been shut down.
  void close();
  /// The conversation has ended: nothing is kept, nobody is told of anything.
  void forget();

  /// `frame` is a whole frame of a reply, without its payload. Whether it could be sent, the caller need not
  /// know.
  void reply(std::span<const std::byte> frame, const Payload& payload, const ReplyKeeping& keeping);

  /// A frame that answers nothing: completions, copied bytes, text that kernels printed. `fields` is its
  /// body. `memory` follows as payload and stays as it is until `release` is called: when the client has it,
  /// or nobody wants it any more. `reply_follows`: at once and on this thread, so that a client that waits
  /// for both is woken once. False: there is no conversation.
  bool push(wire::Control message, std::span<const std::byte> fields, std::span<const std::byte> memory = {},
            std::function<void()> release = {}, bool reply_follows = false);
  /// The same with bytes of its own.
  bool push_text(wire::Control message, std::string text, std::span<const std::byte> fields);
  /// Whether more text may be kept.
  [[nodiscard]] bool has_room() const { return kept_text_.load() < most_text; }

  /// The client has the pushes up to this one. False: they have not been sent.
  bool taken(std::uint64_t number);
  /// A client that keeps to its window has taken the oldest push with memory in at least `least` and at most
  /// `most` bytes (it could not have asked for more otherwise), and what was pushed before. False: none was
  /// sent.
  bool assume_taken(std::size_t least, std::size_t most);

  enum class Repeated { done, again, under_way, lost };
  /// The answer of an ask is wanted once more. again: `ask.bytes` (a frame) is to be executed in
  /// `ask.context`, and its answer tells the deferred error.
  Repeated repeat(std::uint32_t lane, std::uint64_t sequence, LinkState::Reply& ask);

  /// Tells how far frames have been executed, if that can be done without waiting for the client. False: the
  /// rest is tell_progress()'s, on a thread that may wait.
  bool try_tell_progress(std::uint64_t received);
  void tell_progress();

  /// Nothing is being said and nobody is connected.
  void save(LinkState& state);
  /// As if it had been pushed behind what was saved.
  static void append(LinkState& state, wire::Control message, std::string_view text,
                     std::span<const std::byte> fields);
  void load(const LinkState& state);

 private:
  static constexpr std::size_t most_text = 8 << 20;
  static constexpr std::size_t fits_surely = 128 << 10;  ///< into a connection's buffers
  static constexpr std::size_t large_reply = 64 << 10;
  static constexpr std::size_t most_replies = LinkState::max_replies;
  static constexpr std::size_t most_pushes = LinkState::max_pushes - 64;  ///< append() adds fewer

  struct KeptReply {
    LinkState::Reply is;
    std::uint64_t sent_on = 0;  ///< number of the connection
  };
  struct KeptPush {
    std::uint64_t number;
    std::vector<std::byte> frame;
    std::string text;
    std::span<const std::byte> memory;
    std::function<void()> release;
    [[nodiscard]] std::span<const std::byte> payload() const {
      return text.empty() ? memory : std::as_bytes(std::span(text));
    }
  };

  // Precondition of these: sending_ held.
  bool send_locked(std::span<const std::byte> frame, const Payload& payload, bool more_follows);
  void send(std::span<const std::byte> frame, const Payload& payload, bool more_follows = false);
  void send_progress(std::uint64_t received);
  void evict_reply();

  bool keep_and_send(wire::Control message, std::span<const std::byte> fields, KeptPush push,
                     bool reply_follows = false);
  void let_go(std::vector<KeptPush>& gone);
  void remove_through(std::uint64_t number, std::vector<KeptPush>& gone);  // precondition: keeping_ held

  std::mutex sending_;  // protects the next members; taken before keeping_
  wire::Stream* stream_ = nullptr;
  std::uint64_t connection_ = 0;
  std::unordered_map<std::uint32_t, KeptReply> replies_;  // by lane

  std::mutex keeping_;  // protects the next members; never held while sending
  bool conversing_ = false;
  std::deque<KeptPush> pushes_;
  std::uint64_t pushed_ = 0;
  std::uint64_t begun_ = 0;       // number of the last push that was begun to be sent on this connection
  std::uint64_t being_sent_ = 0;  // its memory is in use: 0, or begun_
  std::uint64_t heard_ = 0;       // the client has said that it has taken those up to this one
  std::size_t kept_bytes_ = 0;

  std::atomic<std::size_t> kept_text_{0};
  std::atomic<std::uint64_t> progress_{0};  // to be told
};

}  // namespace gpupool::worker
