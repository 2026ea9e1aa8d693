// The frames of this process on their way out: numbered, buffered, sent by one thread at a time, and kept
// until the worker has executed them.
//
// A frame is buffered (out_) -> being sent (the newest chunk, or being_sent_) -> kept (retained_) ->
// acknowledged, and gone. After a connection broke it is sent again from retained_ any number of times.
// The outbox is open, paused (pause() until go_on(): frames are taken, none goes out) or stopped (final).
//
// 1. Numbers ascend without gaps in the order in which frames stand in out_ and then on the stream.
// 2. While sending_, one thread writes to stream_, without mutex_. stream_, being_sent_ and the newest
//    chunk of retained_ are its own until it ends its turn; nobody lets chunks go meanwhile but it.
//    resending_ implies sending_.
// 3. Once retaining(), a frame that was sent is in retained_ until acknowledged_ has reached it. Where
//    memory was short it is missing there, and can_go_on_after() says no.
// 4. acknowledged_ only grows, and only who reads, or the thread that mends, changes it.
// 5. expect() is called under mutex_ before the first byte of its frame can go out: a reply finds its
//    ticket.
// 6. Who asks, without a large payload, waits for no other thread's bytes.
// 7. Whoever has posted and sees post_wakes_flusher_ false is followed by a look of the flusher: the mark is
//    set under mutex_, in the same hold in which out_ was seen to be empty. An ask sets it, too: the worker
//    has nothing to do after it, so the next post is not to wait for a look.
//
// Order of locks: see connection.h. Hooks are called without mutex_, `expect` of an ask with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>

#include "base/mutex.h"
#include "client/link/retained_frames.h"
#include "generated/message_ids.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/transport/stream.h"

namespace gpupool::client {

/// What to send: `context` is the CUDA context the call is made in, 0 where it does not matter.
struct Outgoing {
  std::uint16_t message;
  std::uint32_t epoch;
  std::uint64_t context = 0;
  const iovec* payload = nullptr;  ///< parts sent after the frame
  int payload_parts = 0;
  std::uint64_t payload_bytes = 0;

  static constexpr std::uint64_t inline_payload = 128 << 10;
  /// Sent straight from the caller's memory; a smaller payload is copied into the buffer of frames.
  [[nodiscard]] bool is_large() const { return payload_bytes > inline_payload; }
};

/// An ask whose reply has not come.
struct UnansweredAsk {
  std::uint64_t sequence;
  std::uint32_t lane;
};

/// Thread-safe. Bounded: a thread that posts waits while more than `flush_at` bytes are buffered and another
/// thread is sending, and while more than `most_retained` are not acknowledged. A thread that asks never
/// waits for others' bytes to go out, because the worker may be unable to take them before somebody reads the
/// answer: see send_turns().
class Outbox {
 public:
  struct Hooks {
    /// Called, without locks held, when sending on this connection (see go_on) fails.
    std::function<void(std::uint64_t connection)> on_failure;
    /// Takes in what the worker has said, without waiting.
    std::function<void()> read_arrived;
    /// Reads until acknowledged() is not what it was; false when the connection is lost.
    std::function<bool(std::uint64_t was)> await_progress;
  };
  Outbox(wire::Stream& stream, Hooks hooks) : hooks_(std::move(hooks)), stream_(&stream) {}
  ~Outbox();

  /// Starts the thread that sends posts which no ask has taken along.
  void start_flusher();
  /// From now on what is sent is kept. Before the first post.
  void retain();
  [[nodiscard]] bool retaining() const { return retaining_.load(std::memory_order_relaxed); }

  /// Buffers a frame whose body is written by `encode(Writer&)`. The frame's number, or 0 when the connection
  /// is lost. A large payload is sent before this returns, from `copy` when that is given; else it must stay
  /// in place until the frame is acknowledged and settle() has returned.
  template <class Encode>
  std::uint64_t post(const Outgoing& out, Encode& encode, wire::Buffer* copy = nullptr) {
    MutexLock lock(mutex_);
    if (out.is_large()) return send_payload(out, append_when_free(out, 0, encode), copy);
    if (stopped_) return 0;
    const std::uint64_t sequence = append(out, 0, encode);
    if (out_.size() > flush_at || retained_.bytes() > most_retained) {
      relieve();
      return stopped_ ? 0 : sequence;
    }
    lock.unlock();
    if (post_wakes_flusher_.load(std::memory_order_seq_cst)) wake_flusher();
    return sequence;
  }

  /// Sends a frame that wants a reply. `expect(sequence)` is called before the frame can be answered. False,
  /// and expect not called, when the connection is lost. A large payload must stay in place until the reply
  /// has come, or the connection is lost, and settle() has returned.
  template <class Encode, class Expect>
  bool ask(const Outgoing& out, Encode& encode, Expect expect) {
    MutexLock lock(mutex_);
    if (out.is_large()) {
      const std::uint64_t sequence = append_when_free(out, wire::flag_ask, encode);
      if (sequence == 0) return false;
      expect(sequence);
      send_payload(out, sequence, nullptr);
      return true;
    }
    if (stopped_) return false;
    expect(append(out, wire::flag_ask, encode));
    send_turns(turns_of_an_asker, small);
    next_post_goes_at_once();
    return true;
  }

  /// Sends what is buffered, unless another thread is about it. The next post does not wait for a look.
  void flush();

  /// The worker has the pushes up to this one taken in: told with the next frames.
  void tell_taken(std::uint64_t number);

  /// The worker has executed the frames up to this one. By one thread at a time.
  void acknowledge(std::uint64_t number) {
    if (number > acknowledged_.load(std::memory_order_relaxed)) acknowledged_.store(number);
  }
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_.load(); }
  /// Of payloads, in copies that are kept.
  [[nodiscard]] std::uint64_t copied_bytes();
  /// Until no memory of a caller's is being sent again.
  void settle();

  // After a connection broke; the first may be called by any thread, the rest by the one that makes another.
  /// Nothing is sent any more; what is posted and asked is kept.
  void pause();
  /// The same if it is this connection that has broken: one that is told late ends no newer one.
  void pause(std::uint64_t connection);
  /// Until no thread sends. False: stopped.
  bool await_idle();
  [[nodiscard]] std::uint64_t last_sequence();
  /// Whether the session can go on behind this frame, as far as what was sent is concerned.
  [[nodiscard]] bool can_go_on_after(std::uint64_t received);
  /// Sends on this stream: asks for lost replies, then everything behind `received` again, then goes on.
  void go_on(wire::Stream& stream, std::uint64_t connection, std::uint64_t received,
             std::span<const UnansweredAsk> repeat);

  /// No frame goes out any more; whoever waits returns.
  void stop();
  /// After stop(): when nobody sends any more. What was kept is freed.
  void let_go();

 private:
  static constexpr std::size_t flush_at = 256 << 10;
  static constexpr std::size_t small = 64 << 10;
  static constexpr std::size_t most_retained = 16 << 20;
  static constexpr std::size_t look_for_progress_at = 1 << 20;
  static constexpr int turns_of_an_asker = 4;

  /// When memory runs out nothing of the frame stays behind.
  template <class Encode>
  std::uint64_t append(const Outgoing& out, std::uint16_t flags, Encode& encode) REQUIRES(mutex_) {
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
  void write_frames(const Outgoing& out, std::uint16_t flags, Encode& encode) REQUIRES(mutex_) {
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
    if (out.payload_bytes == 0 || out.is_large()) return;
    for (int n = 0; n < out.payload_parts; ++n) out_.append(out.payload[n].iov_base, out.payload[n].iov_len);
  }
  /// A large payload must follow its frame: the frame is written when the sending is this thread's.
  template <class Encode>
  std::uint64_t append_when_free(const Outgoing& out, std::uint16_t flags, Encode& encode) REQUIRES(mutex_) {
    wait_for_turn();
    return stopped_ ? 0 : append(out, flags, encode);
  }

  // These may give mutex_ up meanwhile, but for the first two.
  void begin(std::uint16_t message, std::uint16_t flags, std::uint32_t epoch) REQUIRES(mutex_);
  void finish() REQUIRES(mutex_);
  void wait_for_turn() REQUIRES(mutex_);
  /// Sends the buffer, and at most `turns` times in all while others have put no more than `limit` into it
  /// meanwhile. An asker sends for others only what surely fits the stream's buffers: the worker may be
  /// sending it its answer.
  void send_turns(int turns, std::size_t limit) REQUIRES(mutex_);
  /// Until the buffer is short again.
  void relieve() REQUIRES(mutex_);
  std::uint64_t send_payload(const Outgoing& out, std::uint64_t sequence, wire::Buffer* copy)
      REQUIRES(mutex_);
  void end_turn() REQUIRES(mutex_);
  /// Takes the buffer to be sent; precondition: the sending is this thread's.
  RetainedFrames::Chunk* take_buffer() REQUIRES(mutex_);
  void let_acknowledged_go() REQUIRES(mutex_);

  bool send_parts(std::span<const std::byte> frames, const iovec* payload, int parts);
  void next_post_goes_at_once() REQUIRES(mutex_) {
    if (out_.size() == 0) post_wakes_flusher_.store(true, std::memory_order_seq_cst);
  }
  void wake_flusher();
  void run_flusher();

  const Hooks hooks_;

  wire::Stream* stream_;  // of the thread that sends, see go_on
  Mutex mutex_;
  std::uint64_t connection_ GUARDED_BY(mutex_) = 0;
  wire::Buffer out_ GUARDED_BY(mutex_);
  std::size_t frame_start_ GUARDED_BY(mutex_) = 0;
  std::uint64_t sequence_ GUARDED_BY(mutex_) = 0;
  std::uint64_t selected_context_ GUARDED_BY(mutex_) = 0;
  bool sending_ GUARDED_BY(mutex_) = false;    // a thread is writing to the stream, without holding the lock
  bool resending_ GUARDED_BY(mutex_) = false;  // and it is the one of go_on
  bool paused_ GUARDED_BY(mutex_) = false;
  int waiting_ GUARDED_BY(mutex_) = 0;  // threads in wait_for_turn
  CondVar turn_ends_;
  CondVar flusher_wakes_;
  bool flusher_wanted_ GUARDED_BY(mutex_) = false;  // while it lingers
  bool stopped_ GUARDED_BY(mutex_) = false;
  RetainedFrames retained_ GUARDED_BY(mutex_);  // the newest chunk belongs to the thread that is sending

  wire::Buffer being_sent_;  // what is not retained; belongs to the thread that is sending
  std::atomic<bool> retaining_{false};
  std::atomic<std::uint64_t> acknowledged_{0};
  std::atomic<bool> post_wakes_flusher_{false};
  std::thread flusher_;
};

}  // namespace gpupool::client
