#include "worker/client_door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

#include "wire/frame.h"
#include "wire/socket_stream.h"

namespace gpupool::worker {
namespace {

constexpr std::int32_t kDeviceUnavailable = 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE

/// Tells an authenticated client that another process has the seat, so that it can say so instead of
/// "broken".
void refuse_seat(int fd, std::uint64_t sequence) {
  struct {
    wire::FrameHeader header;
    wire::ReplyHeader reply;
  } frame{};
  frame.header = {sizeof(frame), static_cast<std::uint16_t>(wire::Control::hello), wire::flag_reply, 0, 0,
                  sequence};
  frame.reply = {kDeviceUnavailable, 0, 0, wire::Status::closed};
  // A fresh socket has room for 40 bytes; one that has not is not worth waiting for.
  (void)::send(fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

ClientDoor::ClientDoor(const std::string& address, const WorkerState& state, ClientSeat& seat)
    : state_(state), seat_(seat) {
  std::string error;
  listener_ = wire::listen_tcp(address, port_, error);
  if (!listener_) throw std::runtime_error(error);
  ::fcntl(listener_.fd(), F_SETFL, ::fcntl(listener_.fd(), F_GETFL) | O_NONBLOCK);
}

void ClientDoor::accept_one() {
  wire::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the listener stays readable: do not spin
    }
    return;
  }
  wire::tune(socket.fd());
  if (visitors_.size() == kMaxPending) visitors_.pop_front();
  visitors_.push_back({std::move(socket), Handshake(state_.token, state_.session_id),
                       boottime_ns() + kHandshakeMs * 1'000'000});
}

bool ClientDoor::read_from(Visitor& visitor) {
  std::array<std::byte, wire::max_frame_before_hello> buffer{};
  while (visitor.handshake.state() == Handshake::State::reading) {
    const ssize_t got = ::recv(visitor.socket.fd(), buffer.data(), visitor.handshake.wanted(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) return true;
    visitor.handshake.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
  if (visitor.handshake.state() == Handshake::State::refused) {
    std::fputs("gpupool-worker: a connection was closed: no valid HELLO\n", stderr);
    return true;
  }
  const int fd = visitor.socket.fd();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  std::unique_ptr<wire::Stream> stream = std::make_unique<wire::SocketStream>(std::move(visitor.socket));
  wire::FrameHeader header{};
  (void)wire::read_front(visitor.handshake.frame(), header);
  if (!seat_.offer(stream, visitor.handshake.frame(), visitor.handshake.pid())) {
    refuse_seat(fd, header.sequence);
  }
  return true;
}

void ClientDoor::run() {
  std::vector<pollfd> watched;
  for (;;) {
    const std::int64_t now = boottime_ns();
    visitors_.remove_if([now](const Visitor& visitor) { return now >= visitor.deadline_ns; });
    watched.assign(1, {listener_.fd(), POLLIN, 0});
    for (const Visitor& visitor : visitors_) watched.push_back({visitor.socket.fd(), POLLIN, 0});
    int timeout_ms = -1;
    if (!visitors_.empty())
      timeout_ms = static_cast<int>((visitors_.front().deadline_ns - now) / 1'000'000 + 1);
    if (::poll(watched.data(), watched.size(), timeout_ms) <= 0) continue;

    auto entry = watched.begin() + 1;
    for (auto visitor = visitors_.begin(); visitor != visitors_.end(); ++entry) {
      visitor = entry->revents != 0 && read_from(*visitor) ? visitors_.erase(visitor) : std::next(visitor);
    }
    if (watched.front().revents != 0) accept_one();
  }
}

}  // namespace gpupool::worker
