// The client's end of the way to a worker: posts that are buffered, asks that wait for their reply, and what
// the worker says unasked. Where it is told how, it makes a broken connection anew and goes on.
//
// States: up -> down -> up -> ..., and from both to lost, which is final.
//   up -> down    fail(): sending or reading failed, and survive() has said how to go on. Outbox and replies
//                 pause: posts and asks are taken as before, nothing goes out, who waits waits on.
//   down -> up    reconnect(), on the thread that mends: the worker has everything up to `received`.
//   -> lost       lose(): without survive(), by give_up(), when the session cannot go on, or at the end.
//                 Outbox and replies stop: who waits returns, every later call fails.
//
// 1. Only the thread that mends replaces stream_; it does so while down, when nobody sends (await_idle)
//    and the reading is its own (take_lead).
// 2. A failure names the connection on which it was seen: one that is told late ends no newer connection.
// 3. First the replies go on, then the outbox: the reply to what is sent again finds somebody who reads.
// 4. `broken()` is true from before who waits returns, so that a caller that got no reply can tell why.
//
// Order of locks: Outbox::mutex_ before ReplyDemultiplexer::mutex_ before the locks of who is asked by
// read_until() (host functions, arriving copies). linking_ is held together with neither; under it nothing is
// waited for but itself. No lock of these is held while a stream sends or receives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "client/link/outbox.h"
#include "client/link/reconnect_policy.h"
#include "client/link/reply_demultiplexer.h"
#include "client/process/main_wait.h"
#include "wire/hello.h"
#include "wire/transport/stream.h"

namespace gpupool::client {

/// Thread-safe. After the connection is lost for good every call fails at once. std::bad_alloc leaves post
/// and ask as if they had not been called; in a sink or while a reply is read it counts as a loss.
class Connection {
 public:
  /// Connects in the best way that there is and says HELLO. Null and `error` filled on failure.
  static std::unique_ptr<Connection> open(const std::string& address, const wire::HelloBody& hello,
                                          wire::HelloReply& reply, std::string& error);
  /// As open, over a stream that leads to the worker already.
  static std::unique_ptr<Connection> over(std::unique_ptr<wire::Stream> stream, const wire::HelloBody& hello,
                                          wire::HelloReply& reply, std::string& error);
  ~Connection();

  /// How a broken connection is made anew.
  struct Survival {
    wire::HelloBody hello;
    /// What to do next, after this result. Called on a thread of the
    /// connection's own; may read files. `wanted`: somebody needs the connection now.
    std::function<ReconnectPolicy::Step(ReconnectPolicy::Result last, bool wanted)> next;
    /// Connected: whether what the worker answered to HELLO is still the session that the process knows.
    std::function<bool(const wire::HelloReply&, std::string& error)> accept;
    /// What the worker has asked for on the way (run_errand), on a thread of the connection's own.
    std::function<void()> errand;
    /// A stream to an address; where it is empty, the best way that there is.
    std::function<std::unique_ptr<wire::Stream>(const std::string& address, std::string& error)> dial;
    /// It is lost for good; may be empty. Called on any thread.
    std::function<void()> lost = {};
  };
  /// Once, before the first post. Without it a broken connection is lost.
  void survive(Survival how);
  /// The worker may be somewhere else, or be back: a connection that was given up for now is tried again, and
  /// with `elsewhere` one that stands is left.
  void look_again(bool elsewhere);
  /// False: not connected within `limit`.
  bool await_connected(std::chrono::milliseconds limit);

  /// Buffers a frame whose body is written by `encode(Writer&)`. The caller may reuse the payload's memory
  /// when this returns. The number of the frame, by which its place among all others is known; 0 when the
  /// connection is lost.
  template <class Encode>
  std::uint64_t post(const Outgoing& out, Encode encode) {
    return out.is_large() ? post_large(out, encode) : outbox_.post(out, encode);
  }

  /// Sends a frame and waits for its reply. False when the connection is lost.
  template <class Encode>
  bool ask(const Outgoing& out, Encode encode, Reply& reply, PayloadSink* sink = nullptr) {
    return ask_within(out, encode, reply, no_limit, sink) == Outcome::answered;
  }

  using Outcome = ReplyDemultiplexer::Outcome;
  static constexpr int no_limit = -1;

  /// As ask, but gives up waiting after `timeout_ms`; not with a large payload.
  template <class Encode>
  Outcome ask_within(const Outgoing& out, Encode encode, Reply& reply, int timeout_ms,
                     PayloadSink* sink = nullptr) {
    const MainWait wait;
    ReplyDemultiplexer::Ticket ticket(reply, sink, out.is_large());
    ReplyDemultiplexer::Deadline deadline;
    const auto start = timeout_ms != no_limit ? Clock::now() : Clock::time_point{};
    if (timeout_ms != no_limit) deadline = start + std::chrono::milliseconds(timeout_ms);
    if (!outbox_.ask(out, encode, [&](std::uint64_t sequence) { replies_.expect(ticket, sequence); }))
      return Outcome::lost;
    const Outcome outcome = replies_.wait(ticket, deadline);
    if (out.is_large()) outbox_.settle();
    if (timeout_ms != no_limit && outcome == Outcome::answered) note_round_trip(Clock::now() - start);
    return outcome;
  }

  /// Sends what is buffered.
  void flush() {
    const MainWait wait;
    outbox_.flush();
  }
  /// Takes in what the worker has sent unasked, without waiting.
  void read_arrived() { replies_.read_arrived(); }
  /// Sends what is buffered and reads until `done()`; false when the connection is lost.
  bool read_until(const std::function<bool()>& done) {
    const MainWait wait;
    outbox_.flush();
    return replies_.read_until(done);
  }
  /// Before the first call whose consequence the frame is.
  void on_push(wire::Control message, PushHandler handler) { replies_.on_push(message, std::move(handler)); }

  /// The same without payload, for `take(body)` that says whether it may be so.
  template <class Body, class Take>
  void on_told(wire::Control message, Take take) {
    on_push(message, [take](std::span<const std::byte> fields, wire::Receiver&, std::uint64_t payload) {
      Body body;
      return payload == 0 && wire::unpack(fields, body) && take(body);
    });
  }

  /// Has the errand run soon. Never waits.
  void run_errand() { replies_.run_errand(); }

  /// The first failure of a post that the worker told of since the last call.
  std::optional<DeferredError> take_deferred() { return replies_.deferred.take(); }
  void keep_deferred(std::int32_t error, std::uint32_t message) { replies_.deferred.keep(error, message); }

  /// From any thread: the connection is over, whoever waits for it returns.
  void give_up() { lose(); }
  /// Lost for good.
  [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed); }
  /// In a forked child: the parent's connection must not be touched, only its descriptor closed.
  void abandon_after_fork();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { up, down, lost };

  explicit Connection(std::unique_ptr<wire::Stream> stream);
  /// Says HELLO. Null and `error` on failure; `elsewhere` is set when nobody answered on this stream.
  static std::unique_ptr<Connection> greet(std::unique_ptr<wire::Stream> stream, const std::string& address,
                                           const wire::HelloBody& hello, wire::HelloReply& answer,
                                           std::string& error, bool& elsewhere);
  /// The connection with this number has failed; `may_heal`: another one may go on where it ended.
  void fail(std::uint64_t connection, bool may_heal);
  void lose();

  template <class Encode>
  std::uint64_t post_large(const Outgoing& out, Encode& encode) {
    const MainWait wait;
    if (!outbox_.retaining()) return outbox_.post(out, encode);
    wire::Buffer copy;
    if (copies_payload(out, copy)) return outbox_.post(out, encode, &copy);
    const std::uint64_t sequence = outbox_.post(out, encode);
    return sequence != 0 && await_acknowledged(sequence) ? sequence : 0;
  }
  bool copies_payload(const Outgoing& out, wire::Buffer& copy);
  bool await_acknowledged(std::uint64_t sequence);
  void note_round_trip(Clock::duration took);

  // The thread that mends: reconnection.cpp.
  void mend();
  /// It is lost for good, and this object stays: what it holds of the system is given back.
  void let_go();
  bool reconnect();
  ReconnectPolicy::Result greet_again(const ReconnectPolicy::Step& step,
                                      std::unique_ptr<wire::Stream>& stream, wire::HelloReply& answer,
                                      std::string& error);
  ReconnectPolicy::Result say_hello(wire::Stream& stream, int timeout_ms, wire::HelloReply& answer,
                                    std::string& error);
  bool pause_for(std::chrono::milliseconds time);

  std::unique_ptr<wire::Stream>
      stream_;  // replaced by the thread that mends, with linking_ held; null in the end
  std::atomic<bool> broken_{false};
  std::atomic<std::int64_t> round_trip_ns_{INT64_MAX};  // the shortest so far
  std::optional<Survival> survival_;

  Mutex linking_;  // also keeps stream_ from being replaced
  CondVar linked_;
  State state_ GUARDED_BY(linking_) = State::up;
  std::uint64_t connection_ GUARDED_BY(linking_) = 0;  // number of the one that is up, or was last
  bool looks_again_ GUARDED_BY(linking_) = false;
  bool ending_ GUARDED_BY(linking_) = false;

  ReplyDemultiplexer replies_;
  Outbox outbox_;
  std::thread mender_, listener_;
};

}  // namespace gpupool::client
