#include "client/connection.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>

#include "wire/socket_stream.h"

namespace gpupool::client {
namespace {

constexpr int connect_timeout_ms = 5000;
constexpr int hello_timeout_ms = 10'000;
constexpr auto linger_step = std::chrono::microseconds(50);
constexpr int linger_rounds = 40;

/// Text that kernels printed goes where a local kernel's would go.
bool print(wire::Receiver& receiver, std::uint64_t size) {
  std::array<char, 4096> part;
  while (size > 0) {
    const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(size, part.size()));
    if (!receiver.take(part.data(), now)) return false;
    std::size_t done = 0;
    while (done < now) {
      const ssize_t wrote = write(STDOUT_FILENO, part.data() + done, now - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    size -= now;
  }
  return true;
}

}  // namespace

Connection::Connection(std::unique_ptr<wire::Stream> stream)
    : stream_(std::move(stream)), receiver_(*stream_, 64 << 10) {}

std::unique_ptr<Connection> Connection::open(const std::string& address, const wire::HelloBody& hello,
                                             wire::HelloReply& answer, std::string& error) {
  wire::Socket socket = wire::connect_tcp(address, connect_timeout_ms, error);
  if (!socket) return nullptr;
  std::unique_ptr<Connection> made(
      new Connection(std::make_unique<wire::SocketStream>(std::move(socket), address)));
  Reply reply;
  Outgoing out{static_cast<std::uint16_t>(wire::Control::hello), 0};
  switch (made->ask_within(out, [&](wire::Writer& writer) { writer.put(hello); }, reply, hello_timeout_ms)) {
    case Outcome::answered:
      break;
    case Outcome::late:
      error = "the GPU worker at " + address + " does not answer";
      return nullptr;
    case Outcome::lost:
      error = "the GPU worker at " + address + " refused the connection";
      return nullptr;
  }
  if (reply.header.status == wire::Status::closed) {
    error =
        "another process of this session uses its GPU: a session serves one process; start this one with "
        "`gpupool run`, or let the first one end";
    return nullptr;
  }
  wire::Reader in(reply.fields);
  if (reply.header.status != wire::Status::ok || !wire::HelloReply::decode(in, answer)) {
    error = "the GPU worker at " + address + " could not open the session";
    return nullptr;
  }
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  made->flusher_ = std::thread([connection = made.get()] { connection->run_flusher(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

Connection::~Connection() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  flusher_wakes_.notify_all();
  if (flusher_.joinable()) flusher_.join();
}

void Connection::begin(std::uint16_t message, std::uint16_t flags, std::uint32_t epoch) {
  frame_start_ = out_.size();
  const wire::FrameHeader header{0, message, flags, epoch, 0, ++sequence_};
  out_.append(&header, sizeof(header));
}

void Connection::finish() {
  const auto length = static_cast<std::uint32_t>(out_.size() - frame_start_);
  std::memcpy(out_.data() + frame_start_, &length, sizeof(length));
}

bool Connection::flush() {
  const std::lock_guard sending(sending_);
  {
    const std::lock_guard lock(mutex_);
    if (broken_.load(std::memory_order_relaxed)) return false;
    std::swap(out_, being_sent_);
  }
  return send_buffer(nullptr, 0);
}

bool Connection::send_buffer(const iovec* payload, int parts) {
  iovec first{being_sent_.data(), being_sent_.size()};
  bool sent;
  if (parts == 0) {
    sent = stream_->send_parts(&first, 1);
  } else {
    std::array<iovec, 512> some;  // IOV_MAX is 1024; send_all uses its array up
    std::size_t filled = 0;
    some[filled++] = first;
    sent = true;
    for (int n = 0; sent && n < parts; filled = 0) {
      while (filled < some.size() && n < parts) some[filled++] = payload[n++];
      sent = stream_->send_parts(some.data(), static_cast<int>(filled));
    }
  }
  being_sent_.clear();
  if (!sent) fail();
  return sent;
}

Connection::Outcome Connection::read_reply(const Ticket& ticket, Reply& reply, int timeout_ms,
                                           PayloadSink* sink) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  std::unique_lock lock(turns_);
  if (turn_ != ticket.place) {
    const auto mine = [&] { return turn_ == ticket.place || broken_.load(); };
    ++waiting_;
    bool came = true;
    if (timeout_ms == no_limit) {
      turn_comes_.wait(lock, mine);
    } else {
      came = turn_comes_.wait_until(lock, deadline, mine);
    }
    --waiting_;
    if (!came) {
      try {
        given_up_.insert(ticket.place);
        return Outcome::late;
      } catch (const std::bad_alloc&) {  // nobody could tell that this place is empty
        lock.unlock();
        fail();
        return Outcome::lost;
      }
    }
  }
  if (broken_.load()) return Outcome::lost;
  lock.unlock();
  if (timeout_ms != no_limit && !receiver_.has_frame()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (!stream_->readable(static_cast<int>(std::max<std::int64_t>(left.count(), 0)))) {
      lock.lock();
      next_turn();
      return Outcome::late;
    }
  }
  bool good = false;
  try {
    good = read_one(ticket.sequence, reply, sink);
  } catch (const std::bad_alloc&) {  // what is left of the reply is still on the stream
  }
  if (!good) fail();
  lock.lock();
  next_turn();
  return good ? Outcome::answered : Outcome::lost;
}

void Connection::next_turn() {
  do {
    ++turn_;
  } while (given_up_.erase(turn_) > 0);
  if (waiting_ > 0) turn_comes_.notify_all();
}

bool Connection::read_one(std::uint64_t sequence, Reply& reply, PayloadSink* sink) {
  wire::FrameHeader header{};
  std::span<const std::byte> body;
  while (true) {
    if (!receiver_.receive(header, body)) return false;
    std::uint64_t payload = 0;
    if ((header.flags & wire::flag_bulk) != 0) {
      if (!wire::read_front(body.last(sizeof(payload)), payload)) return false;
      body = body.first(body.size() - sizeof(payload));
    }
    if ((header.flags & wire::flag_reply) == 0) {
      if (header.message != static_cast<std::uint16_t>(wire::Control::output)) return false;
      if (!print(receiver_, payload)) return false;
      continue;
    }
    wire::ReplyHeader result{};
    if (!wire::read_front(body, result)) return false;
    keep_deferred(result);
    if (header.sequence != sequence) {  // of an asker that has given up waiting; replies come in order
      if (header.sequence > sequence || !receiver_.skip(payload)) return false;
      continue;
    }
    reply.header = result;
    body = body.subspan(sizeof(wire::ReplyHeader));
    reply.fields.assign(body.begin(), body.end());
    if (payload == 0) return true;
    return sink != nullptr ? sink->take(receiver_, payload) : receiver_.skip(payload);
  }
}

void Connection::keep_deferred(const wire::ReplyHeader& header) {
  if (header.deferred_error == 0) return;
  std::uint64_t none = 0;
  deferred_.compare_exchange_strong(
      none, std::uint64_t{header.deferred_message} << 32 | static_cast<std::uint32_t>(header.deferred_error));
}

void Connection::wake_flusher() {
  {
    const std::lock_guard lock(mutex_);
    flusher_asleep_.store(false, std::memory_order_relaxed);
  }
  flusher_wakes_.notify_one();
}

/// Sends posts that no ask has taken along. After work it looks again a few times before it sleeps, so that a
/// burst of posts does not pay for waking it each time.
void Connection::run_flusher() {
  prctl(PR_SET_NAME, "gpupool-flush");
  prctl(PR_SET_TIMERSLACK, 1000);
  int idle = 0;
  while (true) {
    bool work;
    {
      std::unique_lock lock(mutex_);
      if (stopping_ || broken_.load()) return;
      work = out_.size() > 0;
      if (!work && ++idle > linger_rounds) {
        // Before every sleep anew: a poster that woke this thread cleared the mark, and an ask may have sent
        // the post since. The mark is set under the mutex that a poster has held before it looks at it.
        while (!stopping_ && !broken_.load() && out_.size() == 0) {
          flusher_asleep_.store(true, std::memory_order_seq_cst);
          flusher_wakes_.wait(lock);
        }
        flusher_asleep_.store(false, std::memory_order_relaxed);
        if (stopping_ || broken_.load()) return;
        work = true;
      }
    }
    if (work) {
      idle = 0;
      if (!flush()) return;
    }
    std::this_thread::sleep_for(linger_step);
  }
}

void Connection::fail() {
  broken_.store(true);
  stream_->shut_down();  // ends the reads of all other threads
  {
    const std::lock_guard lock(turns_);
  }
  turn_comes_.notify_all();
  flusher_wakes_.notify_all();
}

void Connection::abandon_after_fork() {
  broken_.store(true);
  stream_->abandon_after_fork();
}

}  // namespace gpupool::client
