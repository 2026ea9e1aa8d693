// The demultiplexer of replies: what the worker sends is read here and handed to whom it is for. There is no
// thread of its own for that: of the threads that wait, one leads. It reads for all, and passes the lead on
// when its own reply has come (leader/followers).
//
// States of a ticket, which change under mutex_:
//   waiting -> being_read   the leader has read the head of its reply
//   being_read -> answered  the reply is here as a whole
//   being_read -> waiting   the stream ended in the middle: the reply will come again as a whole
//   being_read -> lost      it makes no sense, there was no memory for it, or everything is lost
//   waiting -> answered     refuse_waiting(): no lease, as the worker would say
//   waiting -> lost         lose()
// answered and lost are final. A ticket whose deadline passes while it is waiting leaves; its number goes to
// abandoned_, and who reads the reply throws it away.
//
// 1. At most one thread leads: led_, or the thread that mends between take_lead() and go_on(), when
//    paused_ keeps others from it. stream_, receiver_, connection_ and the counts of pushes are the
//    leader's, without mutex_.
// 2. Nobody waits for a reply while the lead is free and could be taken: whoever gives it up wakes the
//    first ticket that is waiting, else who watches (read_until).
// 3. A reply is acknowledged, and its deferred error kept, once and when it is here as a whole.
// 4. Pushes are taken in the order of their numbers, each once: one with a number up to taken_ is skipped.
// 5. The leader touches a ticket under mutex_ or while it is being_read; its owner stays as long as it is.
// 6. Handlers of pushes and sinks run on the leader's thread, without mutex_: they must not ask or wait.
// 7. The program's callbacks hear of errors that were read when the reader has given the lead up and holds no
//    mutex (CallbacksLater): they may ask.
//
// Order of locks: see connection.h. on_failure and tell_taken are called without mutex_; `done` of read_until
// with it, so it waits for nothing and takes only locks under which nobody calls in here.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "client/link/deferred_error.h"
#include "client/link/lane.h"
#include "client/link/outbox.h"
#include "wire/frame.h"
#include "wire/receiver.h"
#include "wire/transport/stream.h"

namespace gpupool::client {

/// Where the payload of a reply goes. `take` must consume exactly `size` bytes from the receiver. It may be
/// called on another thread than the one that asked, while that one waits.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  virtual bool take(wire::Receiver& receiver, std::uint64_t size) = 0;
};

struct Reply {
  wire::ReplyHeader header{};
  std::vector<std::byte> fields;
  std::uint64_t sequence = 0;  ///< of the ask
};

/// What a frame that answers nothing is given to: its body without the payload's size, and the receiver, from
/// which exactly `payload` bytes are to be taken. Called on whatever thread reads: it must not ask. False:
/// the frame makes no sense, the connection ends.
using PushHandler =
    std::function<bool(std::span<const std::byte> body, wire::Receiver& receiver, std::uint64_t payload)>;

/// Thread-safe.
class ReplyDemultiplexer {
 public:
  enum class Failure {
    ended,     ///< the stream has: another one may go on
    senseless  ///< what the worker said, or there was no memory for it
  };
  struct Hooks {
    /// Called, without locks held, when reading on this connection (see go_on) fails; it must call pause() or
    /// lose().
    std::function<void(std::uint64_t connection, Failure)> on_failure;
    /// The worker has executed the frames up to this one.
    std::function<void(std::uint64_t number)> acknowledged;
    /// Pushes up to this one have been taken in, and the worker should hear of it some time.
    std::function<void(std::uint64_t number)> tell_taken;
  };
  ReplyDemultiplexer(wire::Stream& stream, Hooks hooks) : hooks_(std::move(hooks)), stream_(&stream) {
    receiver_.emplace(stream, buffer_bytes);
  }

  /// One asker; lies on its stack.
  class Ticket {
   public:
    /// `lends`: a payload is sent from the asker's memory, so it must not leave before the reply has come.
    explicit Ticket(Reply& reply, PayloadSink* sink = nullptr, bool lends = false)
        : reply_(reply), sink_(sink), lends_(lends) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    friend class ReplyDemultiplexer;
    enum class State { waiting, being_read, answered, lost };
    Reply& reply_;
    PayloadSink* sink_;
    bool lends_;
    std::atomic<State> state_{State::waiting};
    bool asleep_ = false;  // in `wakes_`, and nobody has handed it the lead; under the mutex
    CondVar wakes_;
    std::uint32_t lane_ = lane_of_this_thread();
    Ticket* next_ = nullptr;
  };

  enum class Outcome { answered, late, lost };
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  /// Before the ask with this number is sent. wait() must follow.
  void expect(Ticket& ticket, std::uint64_t sequence);
  /// A late reply is thrown away by whoever reads it.
  Outcome wait(Ticket& ticket, const Deadline& deadline);

  /// Takes in what has arrived, without waiting, unless another thread is about it.
  void read_arrived();
  /// Reads until `done()`, which is asked again after each frame. False when the connection is lost.
  bool read_until(const std::function<bool()>& done);

  /// To be called before anything can arrive that is for it.
  void on_push(wire::Control message, PushHandler handler) {
    handlers_[static_cast<std::uint16_t>(message)] = std::move(handler);
  }

  /// Reads while nobody else does, for a thread of its own: returns when nothing will arrive any more.
  /// `quiet`: how long nobody must have read before. That the stream has ended it leaves for who needs it to
  /// find out. Runs `errand`, not reading, after run_errand().
  void listen(std::chrono::milliseconds quiet, const std::function<void()>& errand);
  /// From any thread, also while it reads.
  void run_errand();

  /// Nothing will arrive any more: everybody who waits is told.
  void lose();
  /// After lose(): when nobody reads any more. What has arrived is freed.
  void let_go();

  // After a connection broke; the first may be called by any thread, the rest by the one that makes another.
  /// Nobody reads any more on this connection, if it is no older one; who waits goes on waiting.
  void pause(std::uint64_t connection);
  /// Until nobody reads: then the reading is the caller's. False: lost.
  bool take_lead();
  /// From now on this is the stream. The caller reads: an answer that is not this object's, or frames until
  /// the push with this number has been taken.
  wire::Receiver& read_from(wire::Stream& stream);
  bool read_pushes(std::uint64_t through);
  [[nodiscard]] std::uint64_t taken() const { return taken_.load(); }
  /// Asks up to this frame whose replies have not come.
  [[nodiscard]] std::vector<UnansweredAsk> unanswered(std::uint64_t received);
  /// Who waits for a reply is told what a worker would say to a call without a lease. A reply that comes all
  /// the same is thrown away. Whoever lends a payload waits on.
  void refuse_waiting();
  /// Whether somebody waits for a reply.
  [[nodiscard]] bool awaited();
  /// The others read again.
  void go_on(std::uint64_t connection);

  DeferredErrorSlot deferred;

 private:
  static constexpr std::size_t buffer_bytes = 64 << 10;
  static constexpr std::uint64_t tell_after_pushes = 32, tell_after_bytes = 1 << 20;
  static constexpr std::chrono::seconds look_interval{5};  // between two looks after the peer

  enum class Read { done, ended, senseless };
  Read read_frame();
  bool read_reply(const wire::FrameHeader& header, std::span<const std::byte> body, std::uint64_t payload);
  bool read_push(const wire::FrameHeader& header, std::span<const std::byte> body, std::uint64_t payload);
  void failed(Read how);
  /// Of who listens: nobody else wants to read, or anything else from it.
  [[nodiscard]] bool left_alone() EXCLUDES(mutex_);
  [[nodiscard]] bool more_comes();
  bool lead(const Ticket& mine, const Deadline& deadline);
  void unlink(Ticket& ticket) REQUIRES(mutex_);
  void pass_lead_on() REQUIRES(mutex_);
  bool give_up(Ticket& ticket) REQUIRES(mutex_);
  [[nodiscard]] bool may_lead() const REQUIRES(mutex_) { return !led_ && !lost_ && !paused_; }

  const Hooks hooks_;
  std::array<PushHandler, wire::first_call> handlers_;

  // These belong to the leader.
  wire::Stream* stream_;
  std::optional<wire::Receiver> receiver_;
  std::uint64_t connection_ = 0;
  std::uint64_t untold_pushes_ = 0, untold_bytes_ = 0;
  std::chrono::steady_clock::time_point next_look_;  // of who does not wait
  std::atomic<std::uint64_t> taken_{0};              // number of the last push taken in

  Mutex mutex_;  // states of tickets change under it
  Ticket* first_ GUARDED_BY(mutex_) = nullptr;
  bool led_ GUARDED_BY(mutex_) = false;
  bool lost_ GUARDED_BY(mutex_) = false;
  bool paused_ GUARDED_BY(mutex_) = false;
  CondVar lead_is_free_;
  CondVar frame_read_;
  CondVar listener_wakes_;
  std::uint64_t leads_ GUARDED_BY(mutex_) = 0;  // how often somebody has begun to read
  bool found_end_ GUARDED_BY(mutex_) = false;   // by who listens, on this connection
  bool errand_waits_ GUARDED_BY(mutex_) = false;
  int watching_ GUARDED_BY(mutex_) = 0;                   // threads in read_until
  std::set<std::uint64_t> abandoned_ GUARDED_BY(mutex_);  // numbers of asks whose askers have left
};

}  // namespace gpupool::client
