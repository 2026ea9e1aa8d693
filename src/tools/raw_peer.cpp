#include "tools/raw_peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace gpupool::bench {
namespace {

enum class Command : std::uint8_t { ping, up, down };

void check(bool worked) {
  if (!worked) throw std::runtime_error("the raw socket peer is gone");
}

/// The first byte of a question says what it asks.
[[noreturn]] void serve(int listener, std::size_t question_size, std::size_t answer_size,
                        std::size_t stream_size) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::byte> question(question_size), answer(answer_size, std::byte{2}),
      stream(stream_size, std::byte{3});
  const int fd = ::accept(listener, nullptr, nullptr);
  wire::tune(fd);
  while (wire::receive_exactly(fd, question.data(), question.size())) {
    const auto command = static_cast<Command>(question.front());
    if (command == Command::up && !wire::receive_exactly(fd, stream.data(), stream.size())) break;
    if (!wire::send_all(fd, command == Command::down ? stream : answer)) break;
  }
  ::_exit(0);
}

}  // namespace

RawPeer::RawPeer(std::size_t question, std::size_t answer, std::size_t stream)
    : question_(question), answer_(answer), stream_(stream, std::byte{1}) {
  std::uint16_t port = 0;
  std::string error;
  wire::Socket listener = wire::listen_tcp("127.0.0.1:0", port, error);
  if (!listener) throw std::runtime_error(error);
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("fork failed");
  if (child_ == 0) serve(listener.fd(), question, answer, stream);
  socket_ = wire::connect_tcp("127.0.0.1:" + std::to_string(port), 5000, error);
  if (!socket_) throw std::runtime_error(error);
}

RawPeer::~RawPeer() {
  if (child_ <= 0) return;
  socket_.close();
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void RawPeer::ping_pong() {
  question_.front() = static_cast<std::byte>(Command::ping);
  check(wire::send_all(socket_.fd(), question_) &&
        wire::receive_exactly(socket_.fd(), answer_.data(), answer_.size()));
}

void RawPeer::stream_up() {
  question_.front() = static_cast<std::byte>(Command::up);
  check(wire::send_all(socket_.fd(), question_) && wire::send_all(socket_.fd(), stream_) &&
        wire::receive_exactly(socket_.fd(), answer_.data(), answer_.size()));
}

void RawPeer::stream_down() {
  question_.front() = static_cast<std::byte>(Command::down);
  check(wire::send_all(socket_.fd(), question_) &&
        wire::receive_exactly(socket_.fd(), stream_.data(), stream_.size()));
}

}  // namespace gpupool::bench
