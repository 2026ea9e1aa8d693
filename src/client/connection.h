// The client's end of a connection to a worker: posts that are buffered, asks that wait for their reply, and
// what the worker says unasked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/outbox.h"
#include "client/reply_desk.h"
#include "wire/hello.h"
#include "wire/stream.h"

namespace gpupool::client {

/// Thread-safe. After the first failure every call fails at once. std::bad_alloc leaves post and ask as if
/// they had not been called; in a sink or while a reply is read it counts as a failure.
class Connection {
 public:
  /// Connects in the best way that there is and says HELLO. Null and `error` filled on failure.
  static std::unique_ptr<Connection> open(const std::string& address, const wire::HelloBody& hello,
                                          wire::HelloReply& reply, std::string& error);
  /// As open, over a stream that leads to the worker already.
  static std::unique_ptr<Connection> over(std::unique_ptr<wire::Stream> stream, const wire::HelloBody& hello,
                                          wire::HelloReply& reply, std::string& error);
  ~Connection();

  /// Buffers a frame whose body is written by `encode(Writer&)`. With a payload the frame is sent before this
  /// returns. The number of the frame, by which its place among all others is known; 0 when the connection is
  /// lost.
  template <class Encode>
  std::uint64_t post(const Outgoing& out, Encode encode) {
    return outbox_.post(out, encode);
  }

  /// Sends a frame and waits for its reply. False when the connection is lost.
  template <class Encode>
  bool ask(const Outgoing& out, Encode encode, Reply& reply, PayloadSink* sink = nullptr) {
    return ask_within(out, encode, reply, no_limit, sink) == Outcome::answered;
  }

  using Outcome = ReplyDesk::Outcome;
  static constexpr int no_limit = -1;

  /// As ask, but gives up waiting after `timeout_ms`.
  template <class Encode>
  Outcome ask_within(const Outgoing& out, Encode encode, Reply& reply, int timeout_ms,
                     PayloadSink* sink = nullptr) {
    ReplyDesk::Ticket ticket(reply, sink);
    ReplyDesk::Deadline deadline;
    if (timeout_ms != no_limit)
      deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    if (!outbox_.ask(out, encode, [&](std::uint64_t sequence) { desk_.expect(ticket, sequence); }))
      return Outcome::lost;
    return desk_.wait(ticket, deadline);
  }

  /// Sends what is buffered.
  void flush() { outbox_.flush(); }
  /// Takes in what the worker has sent unasked, without waiting.
  void read_arrived() { desk_.read_arrived(); }
  /// Sends what is buffered and reads until `done()`; false when the connection is lost.
  bool read_until(const std::function<bool()>& done) {
    outbox_.flush();
    return desk_.read_until(done);
  }
  /// Before the first call whose consequence the frame is.
  void on_push(wire::Control message, PushHandler handler) { desk_.on_push(message, std::move(handler)); }

  /// The first failure of a post that the worker told of since the last call.
  std::optional<DeferredError> take_deferred() { return desk_.deferred.take(); }
  void keep_deferred(std::int32_t error, std::uint32_t message) { desk_.deferred.keep(error, message); }

  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }
  [[nodiscard]] const wire::Stream& stream() const { return *stream_; }
  /// In a forked child: the parent's connection must not be touched, only its descriptor closed.
  void abandon_after_fork();

 private:
  explicit Connection(std::unique_ptr<wire::Stream> stream);
  /// Says HELLO. Null and `error` on failure; `elsewhere` is set when nobody answered on this stream.
  static std::unique_ptr<Connection> greet(std::unique_ptr<wire::Stream> stream, const std::string& address,
                                           const wire::HelloBody& hello, wire::HelloReply& answer,
                                           std::string& error, bool& elsewhere);
  void fail();

  std::unique_ptr<wire::Stream> stream_;
  std::atomic<bool> broken_{false};
  ReplyDesk desk_;
  Outbox outbox_;
};

}  // namespace gpupool::client
