#include "client/connection.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "client/log.h"
#include "wire/dial.h"
#include "wire/worker_address.h"

namespace gpupool::client {
namespace {

constexpr int connect_timeout_ms = 5000;
constexpr int hello_timeout_ms = 10'000;

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
    : stream_(std::move(stream)), desk_(*stream_, [this] { fail(); }), outbox_(*stream_, [this] { fail(); }) {
  on_push(wire::Control::output, [](std::span<const std::byte> body, wire::Receiver& receiver,
                                    std::uint64_t size) { return body.empty() && print(receiver, size); });
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

Connection::~Connection() = default;

void Connection::fail() {
  broken_.store(true);
  stream_->shut_down();  // ends what other threads wait for in the stream
  outbox_.stop();
  desk_.lose();
}

void Connection::abandon_after_fork() {
  broken_.store(true);
  stream_->abandon_after_fork();
}

}  // namespace gpupool::client
