#include "libraries/nccl/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "libraries/nccl/status.h"

namespace gpupool::nccl {
namespace {

void require_system(bool holds, const char* what) {
  if (!holds) throw Failure(system_error, std::string(what) + ": " + std::strerror(errno));
}

/// True when there is something; false when the patience is over.
bool ready(const Socket& socket, short events, const Patience& patience) {
  for (;;) {
    if (patience.stop != nullptr && patience.stop->load()) return false;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(patience.end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{socket.descriptor(), events, 0};
    const int found = poll(&one, 1, static_cast<int>(std::min<long long>(left, 50)));
    if (found > 0) return true;
    require_system(found == 0 || errno == EINTR, "poll");
  }
}

/// As NCCL reads NCCL_SOCKET_IFNAME: beginnings of names; after "=" whole names; after "^" those not to take.
bool is_meant(std::string_view interface, std::string_view wanted) {
  const bool exact = wanted.starts_with('=');
  const bool other = wanted.starts_with('^');
  if (exact || other) wanted.remove_prefix(1);
  bool named = false;
  while (!wanted.empty()) {
    const std::string_view name = wanted.substr(0, wanted.find(','));
    wanted.remove_prefix(std::min(wanted.size(), name.size() + 1));
    if (!name.empty() && (exact ? interface == name : interface.starts_with(name))) named = true;
  }
  return named != other;
}

sockaddr_storage own_address(socklen_t& size) {
  sockaddr_storage found{};
  const char* const wanted = std::getenv("NCCL_SOCKET_IFNAME");
  if (wanted == nullptr || *wanted == '\0') {
    auto* const loopback = reinterpret_cast<sockaddr_in*>(&found);
    loopback->sin_family = AF_INET;
    loopback->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(sockaddr_in);
    return found;
  }
  ifaddrs* list = nullptr;
  require_system(getifaddrs(&list) == 0, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> kept(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if (!is_meant(one->ifa_name, wanted)) continue;
      size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&found, one->ifa_addr, size);
      return found;
    }
  }
  throw Failure(system_error, "NCCL_SOCKET_IFNAME names no interface that has an address");
}

void prepare_socket(const Socket& socket) {
  const int flags = fcntl(socket.descriptor(), F_GETFL);
  require_system(flags >= 0 && fcntl(socket.descriptor(), F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
  const int on = 1;
  static_cast<void>(setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket listening(Address& address) {
  socklen_t size = 0;
  sockaddr_storage own = own_address(size);
  Socket socket(::socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require_system(static_cast<bool>(socket), "socket");
  prepare_socket(socket);
  auto* const plain = reinterpret_cast<sockaddr*>(&own);
  require_system(bind(socket.descriptor(), plain, size) == 0, "bind");
  require_system(listen(socket.descriptor(), SOMAXCONN) == 0, "listen");
  require_system(getsockname(socket.descriptor(), plain, &size) == 0, "getsockname");
  address = {};
  address.size = size;
  std::memcpy(address.bytes, &own, std::min<std::size_t>(size, sizeof(address.bytes)));
  return socket;
}

Socket connected_to(const Address& address, const Patience& patience) {
  sockaddr_storage other{};
  require(address.size >= sizeof(sa_family_t) && address.size <= sizeof(address.bytes),
          "an address is malformed");
  std::memcpy(&other, address.bytes, address.size);
  require(other.ss_family == AF_INET || other.ss_family == AF_INET6, "an address is malformed");
  Socket socket(::socket(other.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require_system(static_cast<bool>(socket), "socket");
  prepare_socket(socket);
  if (connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&other), address.size) == 0)
    return socket;
  require_system(errno == EINPROGRESS, "connect");
  require(ready(socket, POLLOUT, patience), "a rank does not answer", system_error);
  int error = 0;
  socklen_t size = sizeof(error);
  require_system(getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) == 0, "getsockopt");
  errno = error;
  if (error != 0) throw Failure(remote_error, std::string("connect: ") + std::strerror(error));
  return socket;
}

Socket accepted(const Socket& listener, const Patience& patience) {
  while (ready(listener, POLLIN, patience)) {
    Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      // A connection that has gone again is no matter; one that finds no room here would be there at once
      // again.
      require_system(errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM, "accept");
      continue;
    }
    prepare_socket(socket);
    return socket;
  }
  return {};
}

void send_all(const Socket& socket, std::span<const std::byte> bytes, const Patience& patience) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else {
      require(errno == EAGAIN || errno == EINTR, "a rank is gone", remote_error);
      require(ready(socket, POLLOUT, patience), "a rank does not listen", system_error);
    }
  }
}

void receive_all(const Socket& socket, std::span<std::byte> bytes, const Patience& patience) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else {
      require(got < 0 && (errno == EAGAIN || errno == EINTR), "a rank is gone", remote_error);
      require(ready(socket, POLLIN, patience), "a rank does not answer", system_error);
    }
  }
}

}  // namespace gpupool::nccl
