#include "client/outbox.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>

#include "client/lane.h"

namespace gpupool::client {
namespace {

constexpr auto linger_step = std::chrono::microseconds(50);
constexpr int linger_rounds = 40;

}  // namespace

Outbox::~Outbox() {
  stop();
  if (flusher_.joinable()) flusher_.join();
}

void Outbox::start_flusher() {
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  flusher_ = std::thread([this] { run_flusher(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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

void Outbox::wait_for_turn(std::unique_lock<std::mutex>& lock) {
  if (!sending_ || stopped_) return;
  ++waiting_;
  turn_ends_.wait(lock, [this] { return !sending_ || stopped_; });
  --waiting_;
}

void Outbox::end_turn() {
  sending_ = false;
  if (waiting_ > 0) turn_ends_.notify_all();
}

void Outbox::send_turns(std::unique_lock<std::mutex>& lock, int turns, std::size_t limit) {
  if (sending_ || stopped_) return;  // who is sending sees to it that this goes out
  sending_ = true;
  bool sent = true;
  do {
    std::swap(out_, being_sent_);
    lock.unlock();
    sent = being_sent_.size() == 0 || send_parts(nullptr, 0);
    being_sent_.clear();
    lock.lock();
  } while (sent && !stopped_ && --turns > 0 && out_.size() > 0 && out_.size() <= limit);
  end_turn();
  if (sent && out_.size() == 0) return;
  lock.unlock();
  if (sent) {
    wake_flusher();
  } else {
    on_failure_();
  }
  lock.lock();
}

void Outbox::relieve(std::unique_lock<std::mutex>& lock) {
  while (!stopped_ && out_.size() > flush_at) {
    wait_for_turn(lock);
    if (!sending_ && out_.size() > flush_at) send_turns(lock, 1, 0);
  }
}

std::uint64_t Outbox::send_payload(std::unique_lock<std::mutex>& lock, const Outgoing& out,
                                   std::uint64_t sequence) {
  if (sequence == 0) return 0;
  sending_ = true;
  std::swap(out_, being_sent_);
  lock.unlock();
  const bool sent = send_parts(out.payload, out.payload_parts);
  being_sent_.clear();
  lock.lock();
  end_turn();
  const bool more = out_.size() > 0;
  lock.unlock();
  if (!sent) on_failure_();
  if (more) wake_flusher();
  return sent ? sequence : 0;
}

bool Outbox::send_parts(const iovec* payload, int parts) {
  iovec first{being_sent_.data(), being_sent_.size()};
  if (parts == 0) return stream_.send_parts(&first, 1);
  std::array<iovec, 512> some;  // IOV_MAX is 1024; sending uses the array up
  std::size_t filled = 0;
  some[filled++] = first;
  bool sent = true;
  for (int n = 0; sent && n < parts; filled = 0) {
    while (filled < some.size() && n < parts) some[filled++] = payload[n++];
    sent = stream_.send_parts(some.data(), static_cast<int>(filled));
  }
  return sent;
}

void Outbox::flush() {
  std::unique_lock lock(mutex_);
  send_turns(lock, 1, 0);
}

void Outbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  turn_ends_.notify_all();
  flusher_wakes_.notify_all();
}

void Outbox::wake_flusher() {
  {
    const std::lock_guard lock(mutex_);
    flusher_asleep_.store(false, std::memory_order_relaxed);
  }
  flusher_wakes_.notify_one();
}

/// After work it looks again a few times before it sleeps, so that a burst of posts does not pay for waking
/// it each time.
void Outbox::run_flusher() {
  prctl(PR_SET_NAME, "gpupool-flush");
  prctl(PR_SET_TIMERSLACK, 1000);
  int idle = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (stopped_) return;
      if (out_.size() == 0 && ++idle > linger_rounds) {
        // Before every sleep anew: a poster that woke this thread cleared the mark, and an ask may have sent
        // the post since. The mark is set under the mutex that a poster has held before it looks at it.
        while (!stopped_ && out_.size() == 0) {
          flusher_asleep_.store(true, std::memory_order_seq_cst);
          flusher_wakes_.wait(lock);
        }
        flusher_asleep_.store(false, std::memory_order_relaxed);
      }
      if (out_.size() > 0) {
        idle = 0;
        send_turns(lock, std::numeric_limits<int>::max(), std::numeric_limits<std::size_t>::max());
        if (stopped_) return;
      }
    }
    std::this_thread::sleep_for(linger_step);
  }
}

}  // namespace gpupool::client
