#include "client/link/connection.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "client/process/log.h"
#include "shared_api/error_log.h"
#include "wire/transport/dial.h"
#include "wire/transport/worker_address.h"

namespace gpupool::client {
namespace {

constexpr int connect_timeout_ms = 5000;
constexpr int hello_timeout_ms = 10'000;

/// A worker tells as much at once as a device's printf buffer holds.
constexpr std::uint64_t most_text = 4 << 20;

/// Also where the descriptor does not block, unless nobody reads: others wait for the thread that this is.
void write_all(int to, std::string_view text) {
  constexpr int patience_ms = 1000;
  while (!text.empty()) {
    const ssize_t wrote = write(to, text.data(), text.size());
    if (wrote > 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd room{to, POLLOUT, 0};
      if (poll(&room, 1, patience_ms) == 0) return;
    } else if (wrote == 0 || errno != EINTR) {
      return;
    }
  }
}

/// Text that kernels printed, and what the driver says of a kernel's fault: for standard error. It goes where
/// a local kernel's would go: when it is here as a whole, because what was cut comes again.
bool print(std::span<const std::byte> body, wire::Receiver& receiver, std::uint64_t size) {
  wire::Output told;
  if (size > most_text || !wire::unpack(body, told)) return false;
  const bool of_fault = told.stream == STDERR_FILENO;
  if (!of_fault && told.stream != STDOUT_FILENO) return false;
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!receiver.take(text.data(), text.size())) return false;
  if (of_fault) {
    for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      error_log().add(std::string_view(text).substr(at, end - at));
    }
  }
  write_all(told.stream, text);
  return true;
}

/// Where a round trip takes less, a large payload waits to be acknowledged; else it is copied, so that the
/// next call need not wait.
constexpr auto near = std::chrono::milliseconds(1);
constexpr std::uint64_t largest_copy = 8 << 20, most_copies = 32 << 20;

}  // namespace

Connection::Connection(std::unique_ptr<wire::Stream> stream)
    : stream_(std::move(stream)),
      replies_(*stream_, {[this](std::uint64_t connection, ReplyDemultiplexer::Failure how) {
                            fail(connection, how == ReplyDemultiplexer::Failure::ended);
                          },
                          [this](std::uint64_t number) { outbox_.acknowledge(number); },
                          [this](std::uint64_t number) { outbox_.tell_taken(number); }}),
      outbox_(*stream_, {[this](std::uint64_t connection) { fail(connection, true); },
                         [this] { replies_.read_arrived(); },
                         [this](std::uint64_t was) {
                           return replies_.read_until([&] { return outbox_.acknowledged() != was; });
                         }}) {
  on_push(wire::Control::output, [](std::span<const std::byte> body, wire::Receiver& receiver,
                                    std::uint64_t size) { return print(body, receiver, size); });
}

std::unique_ptr<Connection> Connection::open(const std::string& address, const wire::HelloBody& hello,
                                             wire::HelloReply& answer, std::string& error) {
  wire::WorkerAddress worker;
  std::vector<wire::Transport> ways;
  if (!wire::WorkerAddress::parse(address, worker, error) || !wire::ways_to(worker, ways, error))
    return nullptr;
  for (const wire::Transport way : ways) {
    auto stream = wire::dial(worker, way, connect_timeout_ms, error);
    bool elsewhere = stream == nullptr;  // whether another way may do better
    if (stream != nullptr) {
      auto made = greet(std::move(stream), worker.tcp, hello, answer, error, elsewhere);
      if (made != nullptr || !elsewhere) return made;
    }
    if (way != ways.back()) log_debug("not by " + std::string(wire::name(way)) + ": " + error);
  }
  return nullptr;
}

std::unique_ptr<Connection> Connection::over(std::unique_ptr<wire::Stream> stream,
                                             const wire::HelloBody& hello, wire::HelloReply& answer,
                                             std::string& error) {
  const std::string address = stream->description();
  bool elsewhere = false;
  return greet(std::move(stream), address, hello, answer, error, elsewhere);
}

std::unique_ptr<Connection> Connection::greet(std::unique_ptr<wire::Stream> stream,
                                              const std::string& address, const wire::HelloBody& hello,
                                              wire::HelloReply& answer, std::string& error, bool& elsewhere) {
  std::unique_ptr<Connection> made(new Connection(std::move(stream)));
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
      elsewhere = true;
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
  made->outbox_.start_flusher();
  log_debug("connected by " + made->stream_->description());
  return made;
}

Connection::~Connection() {
  {
    const MutexLock lock(linking_);
    ending_ = true;
    if (stream_ != nullptr) stream_->shut_down();
  }
  linked_.notify_all();
  outbox_.stop();
  replies_.lose();
  if (mender_.joinable()) mender_.join();
  if (listener_.joinable()) listener_.join();
}

void Connection::fail(std::uint64_t connection, bool may_heal) {
  {
    const MutexLock lock(linking_);
    if (state_ != State::up || connection != connection_) return;  // others have said it
    stream_->shut_down();  // ends what other threads wait for in the stream
    may_heal = may_heal && survival_ && !ending_;
    if (may_heal) state_ = State::down;
  }
  if (!may_heal) {
    lose();
    return;
  }
  outbox_.pause(connection);
  replies_.pause(connection);
  linked_.notify_all();
}

void Connection::lose() {
  broken_.store(true);
  std::function<void()> tell;
  {
    const MutexLock lock(linking_);
    // Once: who looks for the worker in vain may come here when the next session has begun.
    if (survival_ && state_ != State::lost) tell = survival_->lost;
    state_ = State::lost;
    if (stream_ != nullptr) stream_->shut_down();
  }
  linked_.notify_all();
  if (tell) tell();
  outbox_.stop();
  replies_.lose();
}

bool Connection::copies_payload(const Outgoing& out, wire::Buffer& copy) try {
  if (round_trip_ns_.load() < std::chrono::nanoseconds(near).count()) return false;
  if (out.payload_bytes > largest_copy || outbox_.copied_bytes() + out.payload_bytes > most_copies)
    return false;
  for (int n = 0; n < out.payload_parts; ++n) copy.append(out.payload[n].iov_base, out.payload[n].iov_len);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Connection::await_acknowledged(std::uint64_t sequence) {
  const bool alive = replies_.read_until([&] { return outbox_.acknowledged() >= sequence; });
  outbox_.settle();
  return alive;
}

void Connection::note_round_trip(Clock::duration took) {
  const std::int64_t ns = std::chrono::nanoseconds(took).count();
  std::int64_t before = round_trip_ns_.load();
  while (ns < before && !round_trip_ns_.compare_exchange_weak(before, ns)) {
  }
}

void Connection::abandon_after_fork() {
  broken_.store(true);
  if (stream_ != nullptr) stream_->abandon_after_fork();
}

}  // namespace gpupool::client
