#include "wire/transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/other_process.h"
#include "wire/transport/name_lookup.h"

namespace gpupool::wire {
namespace {

/// Of a name, by itself: a resolver asks the second name server when the first one has been silent for 5 s.
constexpr int look_up_ms = 12'000;
constexpr int look_interval_s =
    5;  // how long a read, a write or a wait goes on before it asks after the peer

bool connect_within(int fd, const addrinfo& to, int timeout_ms) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wait{fd, POLLOUT, 0};
  int ready;
  do {
    ready = poll(&wait, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    if (ready == 0) errno = ETIMEDOUT;
    return false;
  }
  int failure = 0;
  socklen_t size = sizeof(failure);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
  errno = failure;
  return failure == 0;
}

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

Socket listen_on(const std::string& address, std::uint16_t& bound_port, std::string& error) {
  const Addresses found = look_up(address, true, std::nullopt, error);
  if (!found) return {};
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!socket) continue;
    set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    tune(socket.fd());  // accepted sockets inherit the buffer sizes
    const timeval forever{};
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &forever,
               sizeof(forever));  // accepting may take its time
    if (bind(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 || listen(socket.fd(), 16) != 0) {
      error = "cannot listen on " + address + ": " + std::strerror(errno);
      continue;
    }
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size);
    bound_port = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                                  : reinterpret_cast<sockaddr_in&>(name).sin_port);
    return socket;
  }
  if (error.empty()) error = "cannot listen on " + address;
  return {};
}

struct PortRange {
  std::string host;  // with the colon behind it
  int first, last;
};

/// Of `host:first-last`; nothing for `host:port`.
std::optional<PortRange> ports_of(const std::string& address) {
  const auto colon = address.rfind(':'), dash = address.rfind('-');
  if (colon == std::string::npos || dash == std::string::npos || dash < colon) return std::nullopt;
  PortRange range{address.substr(0, colon + 1), 0, 0};
  const auto read = [&address](std::size_t from, std::size_t to, int& number) {
    const char* end = address.data() + to;
    return std::from_chars(address.data() + from, end, number).ptr == end;
  };
  if (!read(colon + 1, dash, range.first) || !read(dash + 1, address.size(), range.last)) range.first = 0;
  return range;
}

/// For a transfer that failed with EFAULT: touches what it was to read or write. Memory that is not there
/// then faults as in a copy within the program, in the thread that transfers. Else the connection would seem
/// to be broken.
void fault_as_a_copy_would(void* at, std::size_t size, bool written) {
  constexpr std::uintptr_t page = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  for (std::uintptr_t here = begin; here < begin + size; here = here / page * page + page) {
    auto* const byte = reinterpret_cast<unsigned char*>(here);
    if (written) {
      __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
    } else {
      static_cast<void>(__atomic_load_n(byte, __ATOMIC_RELAXED));
    }
  }
}

}  // namespace

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_SNDBUF, 4 << 20);
  set(fd, SOL_SOCKET, SO_RCVBUF, 4 << 20);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  // Not TCP_USER_TIMEOUT: it also ends a connection whose peer is well and does not read for a while.
  const timeval look{look_interval_s, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof(look));
}

bool peer_vanished(int fd, unsigned unanswered) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return (info.tcpi_unacked > 0 && info.tcpi_retransmits >= unanswered) || info.tcpi_probes >= unanswered;
}

bool worth_another_try(int fd) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
  if (!peer_vanished(fd)) return true;
  errno = ETIMEDOUT;
  return false;
}

Socket connect_tcp(const std::string& address, int timeout_ms, std::string& error) {
  const Addresses found = look_up(address, false, look_up_ms, error);
  if (!found) return {};
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!socket) continue;
    tune(socket.fd());  // before connect: the window scale is settled in the handshake
    if (!connect_within(socket.fd(), *at, timeout_ms)) {
      error = "cannot connect to " + address + ": " + std::strerror(errno);
      continue;
    }
    fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
    return socket;
  }
  if (error.empty()) error = "cannot connect to " + address;
  return {};
}

Socket listen_tcp(const std::string& address, std::uint16_t& bound_port, std::string& error) {
  const auto range = ports_of(address);
  if (!range) return listen_on(address, bound_port, error);
  const auto [host, first, last] = *range;
  if (first < 1 || first > last || last > UINT16_MAX) {
    error = "not a range of ports: " + address;
    return {};
  }
  // Workers of one node begin at different places: a port that has just been left may have clients that still
  // dial it.
  const int count = last - first + 1;
  for (int i = 0; i < count; ++i) {
    errno = 0;
    const int port = first + (getpid() + i) % count;
    if (Socket socket = listen_on(host + std::to_string(port), bound_port, error)) return socket;
    if (errno != EADDRINUSE) return {};
  }
  error = "no port of " + address + " is free";
  return {};
}

bool send_all(int fd, std::span<const std::byte> bytes, bool more_follows) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return send_all(fd, &part, 1, more_follows);
}

bool send_all(int fd, iovec* parts, int count, bool more_follows) {
  const int flags = MSG_NOSIGNAL | (more_follows ? MSG_MORE : 0);
  bool touched = false;
  while (count > 0) {
    if (parts->iov_len == 0) {
      ++parts, --count;
      continue;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    ssize_t sent = send_message(fd, message, flags);
    if (sent < 0) {
      if (worth_another_try(fd)) continue;
      if (errno != EFAULT || std::exchange(touched, true)) return false;
      for (int n = 0; n < count; ++n) fault_as_a_copy_would(parts[n].iov_base, parts[n].iov_len, false);
      continue;
    }
    touched = false;
    while (count > 0 && static_cast<std::size_t>(sent) >= parts->iov_len) {
      sent -= static_cast<ssize_t>(parts->iov_len);
      ++parts, --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + sent;
      parts->iov_len -= static_cast<std::size_t>(sent);
    }
  }
  return true;
}

bool receive_exactly(int fd, void* into, std::size_t size) {
  auto* at = static_cast<char*>(into);
  bool touched = false;
  while (size > 0) {
    const ssize_t got = recv(fd, at, size, MSG_WAITALL);
    takes_from_other_process();
    if (got < 0 && worth_another_try(fd)) continue;
    if (got < 0 && errno == EFAULT && !std::exchange(touched, true)) {
      fault_as_a_copy_would(at, size, true);
      continue;
    }
    if (got <= 0) return false;
    touched = false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool bound_to_loopback(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return false;
  if (name.ss_family == AF_INET)
    return ntohl(reinterpret_cast<sockaddr_in&>(name).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  if (name.ss_family != AF_INET6) return false;
  const auto& address = reinterpret_cast<sockaddr_in6&>(name).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == IN_LOOPBACKNET);
}

bool wait_readable(int fd, int timeout_ms, unsigned unanswered) {
  using Clock = std::chrono::steady_clock;
  const bool for_ever = timeout_ms < 0;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  pollfd wait{fd, POLLIN, 0};
  int slice = timeout_ms;
  while (true) {
    slice = for_ever ? look_interval_s * 1000 : std::min(slice, look_interval_s * 1000);
    const int ready = poll(&wait, 1, slice);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;
    // While something is unanswered the system sends no keepalive, and poll tells nothing for a quarter of an
    // hour.
    if (ready == 0 && slice > 0 && peer_vanished(fd, unanswered)) return true;
    if (for_ever) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (ready == 0 && left.count() <= 0) return false;
    slice = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, look_interval_s * 1000));
  }
}

bool peer_closed(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace gpupool::wire
