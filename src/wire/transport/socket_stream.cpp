#include "wire/transport/socket_stream.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/other_process.h"

namespace gpupool::wire {

bool SocketStream::send_parts(iovec* parts, int count, bool more_follows) {
  return send_all(socket_.fd(), parts, count, more_follows);
}

std::size_t SocketStream::receive_some(void* into, std::size_t room) {
  while (true) {
    const ssize_t got = recv(socket_.fd(), into, room, 0);
    takes_from_other_process();
    if (got >= 0) return static_cast<std::size_t>(got);
    if (!worth_another_try(socket_.fd())) return 0;
  }
}

bool SocketStream::receive(void* into, std::size_t size) {
  return receive_exactly(socket_.fd(), into, size);
}

bool SocketStream::readable(int timeout_ms) {
  return wait_readable(socket_.fd(), timeout_ms);
}

bool SocketStream::holds_unread() {
  int unread = 0;
  return ioctl(socket_.fd(), FIONREAD, &unread) == 0 && unread > 0;
}

bool SocketStream::hung_up() const {
  return peer_closed(socket_.fd());
}

void SocketStream::shut_down() noexcept {
  shutdown(socket_.fd(), SHUT_RDWR);
}

}  // namespace gpupool::wire
