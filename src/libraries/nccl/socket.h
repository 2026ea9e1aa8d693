// TCP sockets that close themselves; what waits ends at a moment or when it is told to stop.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace gpupool::nccl {

using Clock = std::chrono::steady_clock;

/// How long a wait may be: until `end`, and no longer than nobody says stop.
struct Patience {
  Clock::time_point end;
  const std::atomic<bool>* stop = nullptr;
};

/// Where a listener is, of either family of addresses; it travels, so that it is checked before use.
struct Address {
  std::uint32_t size = 0;
  std::byte bytes[28] = {};
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Listens on a free port of loopback, or of the interface that NCCL_SOCKET_IFNAME names. Throws Failure.
Socket listening(Address& address);
Socket connected_to(const Address& address, const Patience& patience);
/// The next connection; none when the patience is over. Throws Failure where this process may have no more.
Socket accepted(const Socket& listener, const Patience& patience);
/// All of the bytes, or Failure: system_error when the patience is over, remote_error when the other is gone.
void send_all(const Socket& socket, std::span<const std::byte> bytes, const Patience& patience);
void receive_all(const Socket& socket, std::span<std::byte> bytes, const Patience& patience);

template <class T>
void send_value(const Socket& socket, const T& value, const Patience& patience) {
  send_all(socket, std::as_bytes(std::span(&value, 1)), patience);
}
template <class T>
T receive_value(const Socket& socket, const Patience& patience) {
  T value;
  receive_all(socket, std::as_writable_bytes(std::span(&value, 1)), patience);
  return value;
}

}  // namespace gpupool::nccl
