// The client's end of a connection to a worker: posts that are buffered, asks that read their reply in the
// caller's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "generated/message_ids.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/receiver.h"
#include "wire/stream.h"

namespace gpupool::client {

/// Where the payload of a reply goes. `take` must consume exactly `size` bytes from the receiver.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  virtual bool take(wire::Receiver& receiver, std::uint64_t size) = 0;
};

struct Reply {
  wire::ReplyHeader header{};
  std::vector<std::byte> fields;
};

/// Why a post failed, as the worker told with the reply of some later ask.
struct DeferredError {
  std::int32_t error;  ///< CUresult
  std::uint16_t message;
};

/// What to send: `context` is the CUDA context the call is made in, 0 where it does not matter.
struct Outgoing {
  std::uint16_t message;
  std::uint32_t epoch;
  std::uint64_t context = 0;
  const iovec* payload = nullptr;  ///< parts sent after the frame, straight from the caller's memory
  int payload_parts = 0;
  std::uint64_t payload_bytes = 0;
};

/// Thread-safe. After the first failure every call fails at once. std::bad_alloc leaves post and ask as if
/// they had not been called; in a sink or while a reply is read it counts as a failure.
class Connection {
 public:
  /// Connects and says HELLO. Null and `error` filled on failure.
  static std::unique_ptr<Connection> open(const std::string& address, const wire::HelloBody& hello,
                                          wire::HelloReply& reply, std::string& error);
  ~Connection();

  /// Buffers a frame whose body is written by `encode(Writer&)`; false when the connection is lost.
  /// With a payload the frame is sent before this returns.
  template <class Encode>
  bool post(const Outgoing& out, Encode encode) {
    if (out.payload_bytes > 0) return send_with_payload(out, encode, 0, nullptr);
    std::size_t waiting;
    {
      const std::lock_guard lock(mutex_);
      if (broken_.load(std::memory_order_relaxed)) return false;
      append(out, 0, encode);
      waiting = out_.size();
    }
    if (waiting > flush_at) return flush();
    if (flusher_asleep_.load(std::memory_order_seq_cst)) wake_flusher();
    return true;
  }

  /// Sends a frame and waits for its reply. False when the connection is lost.
  template <class Encode>
  bool ask(const Outgoing& out, Encode encode, Reply& reply, PayloadSink* sink = nullptr) {
    return ask_within(out, encode, reply, no_limit, sink) == Outcome::answered;
  }

  enum class Outcome { answered, late, lost };
  static constexpr int no_limit = -1;

  /// As ask, but gives up waiting after `timeout_ms`. The late reply is thrown away by whoever reads next.
  template <class Encode>
  Outcome ask_within(const Outgoing& out, Encode encode, Reply& reply, int timeout_ms,
                     PayloadSink* sink = nullptr) {
    Ticket ticket;
    if (out.payload_bytes > 0) {
      if (!send_with_payload(out, encode, wire::flag_ask, &ticket)) return Outcome::lost;
    } else {
      {
        const std::lock_guard lock(mutex_);
        if (broken_.load(std::memory_order_relaxed)) return Outcome::lost;
        append(out, wire::flag_ask, encode);
        ticket = {next_ticket_++, sequence_};
      }
      flush();
    }
    return read_reply(ticket, reply, timeout_ms, sink);
  }

  /// Sends what is buffered.
  bool flush();
  /// The first failure of a post that any reply told of since the last call, late and refused replies
  /// included: the worker tells each only once.
  std::optional<DeferredError> take_deferred() {
    if (deferred_.load(std::memory_order_acquire) == 0) return std::nullopt;
    const std::uint64_t taken = deferred_.exchange(0);
    if (taken == 0) return std::nullopt;
    return DeferredError{static_cast<std::int32_t>(taken), static_cast<std::uint16_t>(taken >> 32)};
  }
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }
  [[nodiscard]] const wire::Stream& stream() const { return *stream_; }
  /// In a forked child: the parent's connection must not be touched, only its descriptor closed.
  void abandon_after_fork();

 private:
  static constexpr std::size_t flush_at = 256 << 10;

  /// Place in the order of replies, and the number of the frame that is answered.
  struct Ticket {
    std::uint64_t place = 0;
    std::uint64_t sequence = 0;
  };

  explicit Connection(std::unique_ptr<wire::Stream> stream);

  /// When memory runs out nothing of the frame stays behind.
  template <class Encode>
  void append(const Outgoing& out, std::uint16_t flags, Encode& encode) {
    const std::size_t size = out_.size();
    const std::uint64_t sequence = sequence_, selected = selected_context_;
    try {
      write_frames(out, flags, encode);
    } catch (...) {
      out_.shrink(size);
      sequence_ = sequence;
      selected_context_ = selected;
      throw;
    }
  }
  template <class Encode>
  void write_frames(const Outgoing& out, std::uint16_t flags, Encode& encode) {
    if (out.context != 0 && out.context != selected_context_) {
      selected_context_ = out.context;
      begin(static_cast<std::uint16_t>(MessageId::SelectContext), 0, out.epoch);
      wire::Writer(out_).put(out.context);
      finish();
    }
    begin(out.message, static_cast<std::uint16_t>(flags | (out.payload_bytes > 0 ? wire::flag_bulk : 0)),
          out.epoch);
    wire::Writer writer(out_);
    encode(writer);
    if (out.payload_bytes > 0) writer.put(out.payload_bytes);
    finish();
  }
  template <class Encode>
  bool send_with_payload(const Outgoing& out, Encode& encode, std::uint16_t flags, Ticket* ticket) {
    const std::lock_guard sending(sending_);
    {
      const std::lock_guard lock(mutex_);
      if (broken_.load(std::memory_order_relaxed)) return false;
      append(out, flags, encode);
      if (ticket != nullptr) *ticket = {next_ticket_++, sequence_};
      std::swap(out_, being_sent_);
    }
    return send_buffer(out.payload, out.payload_parts);
  }

  void begin(std::uint16_t message, std::uint16_t flags, std::uint32_t epoch);
  void finish();
  bool send_buffer(const iovec* payload, int parts);  // precondition: sending_ held
  Outcome read_reply(const Ticket& ticket, Reply& reply, int timeout_ms, PayloadSink* sink);
  bool read_one(std::uint64_t sequence, Reply& reply, PayloadSink* sink);
  void keep_deferred(const wire::ReplyHeader& header);
  void next_turn();  // precondition: turns_ held
  void wake_flusher();
  void run_flusher();
  void fail();

  std::unique_ptr<wire::Stream> stream_;
  wire::Receiver receiver_;

  std::mutex mutex_;  // protects the next seven members
  wire::Buffer out_;
  std::size_t frame_start_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t selected_context_ = 0;
  std::condition_variable flusher_wakes_;
  bool stopping_ = false;

  std::mutex sending_;  // held by the one thread that writes to the socket; taken before mutex_
  wire::Buffer being_sent_;

  std::mutex turns_;  // replies come in the order of the asks: each asker reads when it is its turn
  std::condition_variable turn_comes_;
  std::uint64_t turn_ = 0;
  int waiting_ = 0;
  std::set<std::uint64_t> given_up_;  // places of askers that left before their turn

  std::atomic<std::uint64_t> deferred_{0};  // message << 32 | error, 0: none
  std::atomic<bool> broken_{false};
  std::atomic<bool> flusher_asleep_{false};
  std::thread flusher_;
};

}  // namespace gpupool::client
