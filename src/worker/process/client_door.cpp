#include "worker/process/client_door.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>

#include "wire/frame.h"
#include "wire/transport/local_socket.h"
#include "wire/transport/shared_memory_stream.h"
#include "wire/transport/socket_stream.h"
#include "worker/process/door_answers.h"

namespace gpupool::worker {

namespace {

std::array<std::byte, 16> address_of(const sockaddr_storage& from) {
  std::array<std::byte, 16> address{};
  if (from.ss_family == AF_INET) {
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in&>(from).sin_addr, sizeof(in_addr));
  } else if (from.ss_family == AF_INET6) {
    // Whoever has one IPv6 address has the network of 2^64 that it is in.
    const auto& is = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&is);
    std::memcpy(address.data(), is.s6_addr + (mapped ? 12 : 0), mapped ? sizeof(in_addr) : sizeof(is) / 2);
  }
  return address;
}

}  // namespace

ClientDoor::ClientDoor(const std::string& address, const std::string& local, TlsUse tls,
                       const WorkerState& state, ClientSeat& seat)
    : state_(state), seat_(seat) {
  std::string error;
  listener_ = wire::listen_tcp(address, port_, error);
  if (!listener_) throw std::runtime_error(error);
  ::fcntl(listener_.fd(), F_SETFL, ::fcntl(listener_.fd(), F_GETFL) | O_NONBLOCK);
  if (tls == TlsUse::on || (tls == TlsUse::automatic && !wire::bound_to_loopback(listener_.fd()))) {
    identity_.emplace();
  }
  if (local.empty()) return;
  local_listener_ = wire::listen_local(local, error);
  if (!local_listener_) throw std::runtime_error(error);
}

void ClientDoor::tell_closed(const std::string& why) {
  const std::optional<std::uint64_t> left_out = lines_.admit(boottime_ns());
  if (!left_out) return;
  const std::string more =
      *left_out == 0 ? "" : " (" + std::to_string(*left_out) + " more since the last line)";
  std::fprintf(stderr, "gpupool-worker: a connection was closed: %s%s\n", why.c_str(), more.c_str());
}

void ClientDoor::accept_one(const wire::Socket& listener, bool local) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  wire::Socket socket(
      ::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the listener stays readable: do not spin
    }
    return;
  }
  if (!local) wire::tune(socket.fd());
  if (visitors_.size() == max_pending) visitors_.erase(who_goes());
  Visitor visitor{std::move(socket),
                  local,
                  address_of(from),
                  nullptr,
                  false,
                  POLLIN,
                  Handshake(state_.token, state_.move_key, state_.session_id),
                  boottime_ns() + handshake_ms * 1'000'000};
  if (identity_ && !local) {
    visitor.tls = wire::TlsStream::accept(visitor.socket, *identity_);
    if (visitor.tls == nullptr) return;
  }
  visitors_.push_back(std::move(visitor));
}

std::list<ClientDoor::Visitor>::iterator ClientDoor::who_goes() {
  std::map<Address, std::size_t> pending;
  for (const Visitor& visitor : visitors_) ++pending[visitor.from];
  std::size_t most = 0;
  for (const auto& [from, count] : pending) most = std::max(most, count);
  return std::ranges::find_if(visitors_,
                              [&](const Visitor& visitor) { return pending.at(visitor.from) == most; });
}

long ClientDoor::receive(Visitor& visitor, void* into, std::size_t room) {
  if (visitor.tls == nullptr) return ::recv(visitor.socket.fd(), into, room, 0);
  long step = 0;
  if (!visitor.shaken) {
    step = visitor.tls->try_handshake();
    visitor.shaken = step == 0;
  }
  if (visitor.shaken) step = visitor.tls->try_read(into, room);
  if (step >= 0) return step;
  if (step == tls::failed) {
    tell_closed("it did not speak TLS as expected: " + visitor.tls->failure());
    return 0;
  }
  visitor.events = step == tls::want_write ? POLLOUT : POLLIN;
  errno = EAGAIN;
  return -1;
}

bool ClientDoor::read_from(Visitor& visitor) {
  std::array<std::byte, wire::max_frame_before_hello> buffer{};
  while (visitor.handshake.state() == Handshake::State::reading) {
    const long got = receive(visitor, buffer.data(), visitor.handshake.wanted());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) return true;
    visitor.handshake.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
  if (visitor.handshake.state() == Handshake::State::refused) {
    tell_closed("no valid HELLO");
    return true;
  }
  const wire::Control purpose = visitor.handshake.purpose();
  wire::FrameHeader header{};
  (void)wire::read_front(visitor.handshake.frame(), header);
  const bool stays = purpose == wire::Control::hello || purpose == wire::Control::session;
  std::unique_ptr<wire::Stream> stream = stream_of(visitor, stays);
  if (stream == nullptr) return true;
  switch (purpose) {
    case wire::Control::session:
      if (takeover_) takeover_(std::move(stream));
      break;
    case wire::Control::inquire:
      answer_inquiry(*stream, header.sequence, state_.work, boottime_ns());
      break;
    case wire::Control::end_session:
      confirm_end(*stream, header.sequence);
      stream->shut_down();  // the answer leaves before the process does
      if (ending_) ending_();
      break;
    default:
      if (!seat_.offer(stream, visitor.handshake.frame(), visitor.handshake.pid(),
                       visitor.handshake.connection())) {
        refuse_seat(*stream, header.sequence);
      }
  }
  return true;
}

std::unique_ptr<wire::Stream> ClientDoor::stream_of(Visitor& visitor, bool stays) {
  if (visitor.tls != nullptr) return std::move(visitor.tls);
  const int fd = visitor.socket.fd();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  if (!visitor.local || !stays) return std::make_unique<wire::SocketStream>(std::move(visitor.socket));
  std::string error;
  auto stream = wire::SharedMemoryStream::offer(visitor.socket, error);
  if (stream == nullptr) {
    std::fprintf(stderr, "gpupool-worker: a client of this machine has to use TCP: %s\n", error.c_str());
  }
  return stream;
}

void ClientDoor::welcome(const wire::Socket& listener, bool local) {
  try {
    accept_one(listener, local);
  } catch (const std::exception& error) {
    // Memory or threads have run out: that ends one connection, not the session.
    tell_closed(error.what());
  }
}

bool ClientDoor::attend(Visitor& visitor) {
  try {
    return read_from(visitor);
  } catch (const std::exception& error) {
    tell_closed(error.what());
    return true;
  }
}

void ClientDoor::run() {
  std::vector<pollfd> watched;
  for (;;) {
    const std::int64_t now = boottime_ns();
    visitors_.remove_if([now](const Visitor& visitor) { return now >= visitor.deadline_ns; });
    watched = {{listener_.fd(), POLLIN, 0}, {local_listener_.fd(), POLLIN, 0}};  // poll skips a negative one
    for (const Visitor& visitor : visitors_)
      watched.push_back(
          {visitor.tls != nullptr ? visitor.tls->fd() : visitor.socket.fd(), visitor.events, 0});
    int timeout_ms = -1;
    if (!visitors_.empty())
      timeout_ms = static_cast<int>((visitors_.front().deadline_ns - now) / 1'000'000 + 1);
    if (::poll(watched.data(), watched.size(), timeout_ms) <= 0) continue;

    auto entry = watched.begin() + 2;
    for (auto visitor = visitors_.begin(); visitor != visitors_.end(); ++entry) {
      visitor = entry->revents != 0 && attend(*visitor) ? visitors_.erase(visitor) : std::next(visitor);
    }
    if (watched[0].revents != 0) welcome(listener_, false);
    if (watched[1].revents != 0) welcome(local_listener_, true);
  }
}

}  // namespace gpupool::worker
