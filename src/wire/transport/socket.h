// TCP sockets of the data plane: opened with the options the protocol relies on, and exact reads and writes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace gpupool::wire {

/// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Socket() { close(); }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  void close() noexcept;
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// `host:port` (IPv6 in brackets). Empty socket and `error` filled on failure. `timeout_ms` is for each
/// address of the host; to find them may take 12 s before.
Socket connect_tcp(const std::string& address, int timeout_ms, std::string& error);

/// Listens on `host:port`, or on a free port of `host:first-last`; port 0 lets the system choose,
/// `bound_port` tells which.
Socket listen_tcp(const std::string& address, std::uint16_t& bound_port, std::string& error);

/// TCP_NODELAY, large buffers, and what finds a peer that vanished within about 20 to 30 s: keepalive (10 s /
/// 3 s / 3) while nothing is under way, else a look at unanswered packets whenever a read, a write or a
/// wait has gone on for some seconds. A peer that only does not read (a busy worker, a stopped process) is
/// waited for, however long it takes: its system goes on answering.
void tune(int fd);

/// Whether the system has sent something `unanswered` times without any answer. It doubles the time between
/// attempts, from about 0.2 s: the seventh is 25 s after the first.
inline constexpr unsigned vanished_after = 7;
[[nodiscard]] bool peer_vanished(int fd, unsigned unanswered = vanished_after);
/// After a read or write of a tuned socket failed: interrupted, or waiting for a peer that is there.
[[nodiscard]] bool worth_another_try(int fd);

/// Writes everything. False when the peer is gone. `more_follows`: the next write belongs to the same packet,
/// so that a peer waiting for both is woken once.
bool send_all(int fd, std::span<const std::byte> bytes, bool more_follows = false);
/// Writes all parts; the array is consumed.
bool send_all(int fd, iovec* parts, int count, bool more_follows = false);
/// Reads exactly `size` bytes. False at end of stream or error.
bool receive_exactly(int fd, void* into, std::size_t size);
/// Whether only programs of this machine can connect to a listening socket.
bool bound_to_loopback(int fd);
/// Waits for bytes, the end of the stream, an error or that the peer has vanished (see there); for ever with
/// a negative timeout.
bool wait_readable(int fd, int timeout_ms, unsigned unanswered = vanished_after);
/// Whether the peer has closed its end.
bool peer_closed(int fd);

}  // namespace gpupool::wire
