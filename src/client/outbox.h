// The frames of this process on their way out: numbered, buffered, sent by one thread at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "generated/message_ids.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/stream.h"

namespace gpupool::client {

/// What to send: `context` is the CUDA context the call is made in, 0 where it does not matter.
struct Outgoing {
  std::uint16_t message;
  std::uint32_t epoch;
  std::uint64_t context = 0;
  const iovec* payload = nullptr;  ///< parts sent after the frame, straight from the caller's memory
  int payload_parts = 0;
  std::uint64_t payload_bytes = 0;
};

/// Thread-safe. Bounded: a thread that posts waits while more than `flush_at` bytes are buffered and another
/// thread is sending. A thread that asks never waits for others' bytes to go out, because the worker may be
/// unable to take them before somebody reads the answer: see send_turns().
class Outbox {
 public:
  /// `on_failure` is called, without locks held, when sending fails.
  Outbox(wire::Stream& stream, std::function<void()> on_failure)
      : stream_(stream), on_failure_(std::move(on_failure)) {}
  ~Outbox();

  /// Starts the thread that sends posts which no ask has taken along.
  void start_flusher();

  /// Buffers a frame whose body is written by `encode(Writer&)`. With a payload it is sent before this
  /// returns. The frame's number, or 0 when the connection is lost.
  template <class Encode>
  std::uint64_t post(const Outgoing& out, Encode& encode) {
    std::unique_lock lock(mutex_);
    if (out.payload_bytes > 0) return send_payload(lock, out, append_when_free(lock, out, 0, encode));
    if (stopped_) return 0;
    const std::uint64_t sequence = append(out, 0, encode);
    if (out_.size() > flush_at) {
      relieve(lock);
      return sequence;
    }
    lock.unlock();
    if (flusher_asleep_.load(std::memory_order_seq_cst)) wake_flusher();
    return sequence;
  }

  /// Sends a frame that wants a reply. `expect(sequence)` is called before the frame can be answered. False,
  /// and expect not called, when the connection is lost.
  template <class Encode, class Expect>
  bool ask(const Outgoing& out, Encode& encode, Expect expect) {
    std::unique_lock lock(mutex_);
    if (out.payload_bytes > 0) {
      const std::uint64_t sequence = append_when_free(lock, out, wire::flag_ask, encode);
      if (sequence == 0) return false;
      expect(sequence);
      send_payload(lock, out, sequence);
      return true;
    }
    if (stopped_) return false;
    expect(append(out, wire::flag_ask, encode));
    send_turns(lock, turns_of_an_asker, small);
    return true;
  }

  /// Sends what is buffered, unless another thread is about it.
  void flush();

  /// No frame goes out any more; whoever waits returns.
  void stop();

 private:
  static constexpr std::size_t flush_at = 256 << 10;
  static constexpr std::size_t small = 64 << 10;
  static constexpr int turns_of_an_asker = 4;

  /// When memory runs out nothing of the frame stays behind.
  template <class Encode>
  std::uint64_t append(const Outgoing& out, std::uint16_t flags, Encode& encode) {
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
    return sequence_;
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
  /// The payload must follow its frame: the frame is written when the sending is this thread's.
  template <class Encode>
  std::uint64_t append_when_free(std::unique_lock<std::mutex>& lock, const Outgoing& out, std::uint16_t flags,
                                 Encode& encode) {
    wait_for_turn(lock);
    return stopped_ ? 0 : append(out, flags, encode);
  }

  // The caller holds the lock of mutex_; all but the first two may give it up meanwhile.
  void begin(std::uint16_t message, std::uint16_t flags, std::uint32_t epoch);
  void finish();
  void wait_for_turn(std::unique_lock<std::mutex>& lock);
  /// Sends the buffer, and at most `turns` times in all while others have put no more than `limit` into it
  /// meanwhile. An asker sends for others only what surely fits the stream's buffers: the worker may be
  /// sending it its answer.
  void send_turns(std::unique_lock<std::mutex>& lock, int turns, std::size_t limit);
  /// Until the buffer is short again.
  void relieve(std::unique_lock<std::mutex>& lock);
  std::uint64_t send_payload(std::unique_lock<std::mutex>& lock, const Outgoing& out, std::uint64_t sequence);
  void end_turn();

  bool send_parts(const iovec* payload, int parts);
  void wake_flusher();
  void run_flusher();

  wire::Stream& stream_;
  const std::function<void()> on_failure_;

  std::mutex mutex_;  // protects the next members
  wire::Buffer out_;
  std::size_t frame_start_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t selected_context_ = 0;
  bool sending_ = false;  // a thread is writing to the stream, from being_sent_, without holding the lock
  int waiting_ = 0;       // threads in wait_for_turn
  std::condition_variable turn_ends_;
  std::condition_variable flusher_wakes_;
  bool stopped_ = false;

  wire::Buffer being_sent_;  // belongs to the thread that is sending
  std::atomic<bool> flusher_asleep_{false};
  std::thread flusher_;
};

}  // namespace gpupool::client
