// Where what the worker sends is read and handed to whom it is for. There is no thread of its own for that:
// of the threads that wait, one leads. It reads for all, and passes the lead on when its own reply has come.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "client/deferred_error.h"
#include "wire/frame.h"
#include "wire/receiver.h"
#include "wire/stream.h"

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
class ReplyDesk {
 public:
  /// `on_failure` is called, without locks held, when reading fails; it must call lose().
  ReplyDesk(wire::Stream& stream, std::function<void()> on_failure)
      : stream_(stream), receiver_(stream, 64 << 10), on_failure_(std::move(on_failure)) {}

  /// One asker; lies on its stack.
  class Ticket {
   public:
    Ticket(Reply& reply, PayloadSink* sink) : reply_(reply), sink_(sink) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    friend class ReplyDesk;
    enum class State { waiting, being_read, answered, lost };
    Reply& reply_;
    PayloadSink* sink_;
    std::atomic<State> state_{State::waiting};
    std::condition_variable wakes_;
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

  /// Nothing will arrive any more: everybody who waits is told.
  void lose();

  DeferredErrorSlot deferred;

 private:
  bool read_frame();
  bool read_reply(const wire::FrameHeader& header, std::span<const std::byte> body, std::uint64_t payload);
  bool lead(const Ticket& mine, const Deadline& deadline);
  void unlink(Ticket& ticket);
  void pass_lead_on();
  bool give_up(Ticket& ticket);

  wire::Stream& stream_;
  wire::Receiver receiver_;  // belongs to the leader
  const std::function<void()> on_failure_;
  std::array<PushHandler, wire::first_call> handlers_;

  std::mutex mutex_;  // protects the rest; states of tickets change under it
  Ticket* first_ = nullptr;
  bool led_ = false;
  bool lost_ = false;
  std::condition_variable frame_read_;
  int watching_ = 0;                   // threads in read_until
  std::set<std::uint64_t> abandoned_;  // numbers of asks whose askers have left
};

}  // namespace gpupool::client
