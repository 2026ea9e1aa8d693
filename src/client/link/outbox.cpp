#include "client/link/outbox.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>

#include "base/mutex.h"
#include "base/quiet_thread.h"
#include "client/link/lane.h"
#include "client/process/main_wait.h"
#include "generated/wire/control.h"

namespace gpupool::client {
namespace {

// Each look of the flusher wakes threads here and at the worker. Every 50 us it made a step of a small model
// a quarter longer, and twice as long on a busy machine.
constexpr std::chrono::nanoseconds first_pause = std::chrono::microseconds(100);
constexpr std::chrono::nanoseconds longest_pause = std::chrono::microseconds(400);
constexpr int idle_looks = 4;

template <wire::Control message, class Body>
void append_of_connection(wire::Buffer& out, const Body& body) {
  static_assert(wire::of_connection(message));
  const wire::Buffer fields = wire::packed(body);
  const wire::FrameHeader header{static_cast<std::uint32_t>(sizeof(wire::FrameHeader) + fields.size()),
                                 static_cast<std::uint16_t>(message),
                                 0,
                                 0,
                                 0,
                                 0};
  out.append(&header, sizeof(header));
  out.append(fields.data(), fields.size());
}

}  // namespace

Outbox::~Outbox() {
  stop();
  if (flusher_.joinable()) flusher_.join();
}

void Outbox::start_flusher() {
  flusher_ = quiet_thread([this] { run_flusher(); });
}

void Outbox::begin(std::uint16_t message, std::uint16_t flags, std::uint32_t epoch) {
  frame_start_ = out_.size();
  const wire::FrameHeader header{0, message, flags, epoch, lane_of_this_thread(), ++sequence_};
  out_.append(&header, sizeof(header));
}

void Outbox::finish() {
  const auto length = static_cast<std::uint32_t>(out_.size() - frame_start_);
  std::memcpy(out_.data() + frame_start_, &length, sizeof(length));
}

void Outbox::wait_for_turn() {
  const auto free = [this]() REQUIRES(mutex_) { return (!sending_ && !paused_) || stopped_; };
  if (free()) return;
  ++waiting_;
  turn_ends_.wait(mutex_, free);
  --waiting_;
}

void Outbox::end_turn() {
  sending_ = false;
  if (waiting_ > 0) turn_ends_.notify_all();
}

void Outbox::let_acknowledged_go() {
  retained_.acknowledge(acknowledged_.load(std::memory_order_relaxed));
}

RetainedFrames::Chunk* Outbox::take_buffer() {
  if (retaining()) {
    if (auto* const chunk = retained_.keep(out_, sequence_)) return chunk;
  }
  std::swap(out_, being_sent_);
  return nullptr;
}

void Outbox::send_turns(int turns, std::size_t limit) {
  if (sending_ || paused_ || stopped_) return;  // who is sending sees to it that this goes out
  sending_ = true;
  const std::uint64_t connection = connection_;
  bool sent = true;
  while (out_.size() > 0) {
    const auto* const chunk = take_buffer();
    {
      const MutexUnlock unlocked(mutex_);
      sent = send_parts(chunk != nullptr ? chunk->frames.bytes() : being_sent_.bytes(), nullptr, 0);
      being_sent_.clear();
    }
    let_acknowledged_go();
    if (!sent || stopped_ || paused_ || --turns <= 0 || out_.size() > limit) break;
  }
  end_turn();
  if (sent && (out_.size() == 0 || paused_)) return;
  const MutexUnlock unlocked(mutex_);
  if (sent) {
    wake_flusher();
  } else {
    hooks_.on_failure(connection);
  }
}

void Outbox::relieve() {
  const MainWait wait;
  const auto too_much = [this]() REQUIRES(mutex_) { return retained_.bytes() + out_.size() > most_retained; };
  while (!stopped_) {
    // First: what is acknowledged after that was not let go here, and is not waited for.
    const std::uint64_t was = acknowledged();
    if (!sending_) let_acknowledged_go();
    if (!too_much() && (paused_ || out_.size() <= flush_at)) break;
    if (sending_) {
      wait_for_turn();
    } else if (!paused_ && out_.size() > 0) {
      send_turns(1, 0);
    } else {
      // More than this is acknowledged in several parts, so that there is one to come.
      const MutexUnlock unlocked(mutex_);
      if (!hooks_.await_progress(was)) return;
    }
  }
  if (retained_.bytes() < look_for_progress_at) return;
  const MutexUnlock unlocked(mutex_);
  hooks_.read_arrived();
}

std::uint64_t Outbox::send_payload(const Outgoing& out, std::uint64_t sequence, wire::Buffer* copy) {
  if (sequence == 0) return 0;
  sending_ = true;
  const std::uint64_t connection = connection_;
  auto* const chunk = take_buffer();
  if (chunk != nullptr && copy != nullptr) {
    retained_.own(*chunk, std::move(*copy));
  } else if (chunk != nullptr) {
    RetainedFrames::refer(*chunk, out.payload, out.payload_parts, out.payload_bytes);
  }
  bool sent = false;
  {
    const MutexUnlock unlocked(mutex_);
    sent = chunk != nullptr ? send_parts(chunk->frames.bytes(), chunk->payload, chunk->payload_parts)
                            : send_parts(being_sent_.bytes(), out.payload, out.payload_parts);
    being_sent_.clear();
  }
  let_acknowledged_go();
  end_turn();
  const bool more = out_.size() > 0;
  const MutexUnlock unlocked(mutex_);
  if (!sent) hooks_.on_failure(connection);
  if (more) wake_flusher();
  return sent || chunk != nullptr ? sequence : 0;
}

bool Outbox::send_parts(std::span<const std::byte> frames, const iovec* payload, int parts) {
  iovec first{const_cast<std::byte*>(frames.data()), frames.size()};
  if (parts == 0) return stream_->send_parts(&first, 1);
  std::array<iovec, 512> some;  // IOV_MAX is 1024; sending uses the array up
  std::size_t filled = 0;
  some[filled++] = first;
  bool sent = true;
  for (int n = 0; sent && n < parts; filled = 0) {
    while (filled < some.size() && n < parts) some[filled++] = payload[n++];
    sent = stream_->send_parts(some.data(), static_cast<int>(filled));
  }
  return sent;
}

void Outbox::retain() {
  retaining_ = true;
}

void Outbox::tell_taken(std::uint64_t number) {
  {
    const MutexLock lock(mutex_);
    if (stopped_ || paused_) return;  // HELLO says it
    append_of_connection<wire::Control::taken>(out_, wire::FrameNumber{number});
  }
  if (post_wakes_flusher_.load(std::memory_order_seq_cst)) wake_flusher();
}

std::uint64_t Outbox::copied_bytes() {
  const MutexLock lock(mutex_);
  if (!sending_) let_acknowledged_go();
  return retained_.copied_bytes();
}

void Outbox::settle() {
  MutexLock lock(mutex_);
  if (!resending_) return;
  ++waiting_;
  turn_ends_.wait(mutex_, [this]() REQUIRES(mutex_) { return !resending_; });
  --waiting_;
}

void Outbox::pause() {
  const MutexLock lock(mutex_);
  paused_ = true;
}

void Outbox::pause(std::uint64_t connection) {
  const MutexLock lock(mutex_);
  if (connection == connection_) paused_ = true;
}

bool Outbox::await_idle() {
  MutexLock lock(mutex_);
  ++waiting_;
  turn_ends_.wait(mutex_, [this]() REQUIRES(mutex_) { return !sending_ || stopped_; });
  --waiting_;
  return !stopped_;
}

std::uint64_t Outbox::last_sequence() {
  const MutexLock lock(mutex_);
  return sequence_;
}

bool Outbox::can_go_on_after(std::uint64_t received) {
  const MutexLock lock(mutex_);
  return received >= acknowledged() && received <= sequence_ && retained_.complete_after(received);
}

void Outbox::go_on(wire::Stream& stream, std::uint64_t connection, std::uint64_t received,
                   std::span<const UnansweredAsk> repeat) {
  wire::Buffer repeats;
  for (const UnansweredAsk& ask : repeat) {
    append_of_connection<wire::Control::repeat>(repeats, wire::Repeat{ask.sequence, ask.lane});
  }
  MutexLock lock(mutex_);
  if (stopped_) return;
  stream_ = &stream;
  connection_ = connection;
  paused_ = false;
  sending_ = resending_ = true;
  acknowledge(received);
  lock.unlock();
  bool sent = repeats.size() == 0 || send_parts(repeats.bytes(), nullptr, 0);
  lock.lock();
  for (std::uint64_t done = received; sent && !stopped_ && !paused_;) {
    let_acknowledged_go();
    done = std::max(done, acknowledged());
    auto* const chunk = retained_.after(done);
    if (chunk == nullptr) break;
    lock.unlock();
    sent = send_parts(chunk->frames.bytes().subspan(RetainedFrames::begin_after(*chunk, done)),
                      chunk->payload, chunk->payload_parts);
    lock.lock();
    done = chunk->last;
  }
  let_acknowledged_go();
  resending_ = false;
  end_turn();
  turn_ends_.notify_all();
  post_wakes_flusher_.store(false, std::memory_order_relaxed);
  flusher_wakes_.notify_one();
  lock.unlock();
  if (!sent) hooks_.on_failure(connection);
}

void Outbox::flush() {
  MutexLock lock(mutex_);
  send_turns(1, 0);
  next_post_goes_at_once();
}

void Outbox::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  turn_ends_.notify_all();
  flusher_wakes_.notify_all();
}

void Outbox::let_go() {
  MutexLock lock(mutex_);
  ++waiting_;
  turn_ends_.wait(mutex_, [this]() REQUIRES(mutex_) { return !sending_; });
  --waiting_;
  retained_ = {};
  out_ = {};
  being_sent_ = {};
  lock.unlock();
  if (flusher_.joinable()) flusher_.join();
}

void Outbox::wake_flusher() {
  {
    const MutexLock lock(mutex_);
    post_wakes_flusher_.store(false, std::memory_order_relaxed);
    flusher_wanted_ = true;
  }
  flusher_wakes_.notify_one();
}

/// After work it looks again before it sleeps, so that a burst of posts does not pay for waking it each time.
/// It looks ever less often: each look takes time from the program where cores are few, and the worker is
/// woken for what it finds. So what is late at the end of a burst is in proportion to the burst.
void Outbox::run_flusher() {
  prctl(PR_SET_NAME, "gpupool-flush");
  prctl(PR_SET_TIMERSLACK, 1000);
  const auto nothing = [this]() REQUIRES(mutex_) { return paused_ || out_.size() == 0; };
  const auto wanted = [this]() REQUIRES(mutex_) { return flusher_wanted_ || stopped_; };
  auto pause = first_pause;
  int idle = 0;
  const MutexLock lock(mutex_);
  while (!stopped_) {
    if (!nothing()) {
      idle = 0;
      flusher_wanted_ = false;
      send_turns(std::numeric_limits<int>::max(), std::numeric_limits<std::size_t>::max());
      if (!stopped_ && retained_.bytes() > look_for_progress_at) {
        const MutexUnlock unlocked(mutex_);
        hooks_.read_arrived();
      }
    } else if (paused_ || post_wakes_flusher_.load(std::memory_order_relaxed) || ++idle > idle_looks) {
      // Before every sleep anew: a poster that woke this thread cleared the mark, and an ask may have sent
      // the post since. The mark is set under the mutex that a poster has held before it looks at it.
      while (!stopped_ && nothing()) {
        post_wakes_flusher_.store(true, std::memory_order_seq_cst);
        flusher_wakes_.wait(mutex_);
      }
      post_wakes_flusher_.store(false, std::memory_order_relaxed);
      pause = first_pause;
      continue;
    }
    pause = flusher_wakes_.wait_for(mutex_, pause, wanted) ? first_pause : std::min(2 * pause, longest_pause);
  }
}

}  // namespace gpupool::client
