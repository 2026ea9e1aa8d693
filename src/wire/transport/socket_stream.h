// A stream over a connected stream socket: TCP, and Unix sockets in tests.
#pragma once

#include <string>

#include "wire/transport/socket.h"
#include "wire/transport/stream.h"

namespace gpupool::wire {

class SocketStream final : public Stream {
 public:
  /// A blocking socket. TCP sockets have been tuned.
  explicit SocketStream(Socket socket, std::string peer = {})
      : socket_(std::move(socket)), peer_(std::move(peer)) {}

  using Stream::send_parts;
  [[nodiscard]] bool send_parts(iovec* parts, int count, bool more_follows) override;
  [[nodiscard]] std::size_t receive_some(void* into, std::size_t room) override;
  [[nodiscard]] bool receive(void* into, std::size_t size) override;
  [[nodiscard]] bool readable(int timeout_ms) override;
  [[nodiscard]] bool holds_unread() override;
  [[nodiscard]] bool hung_up() const override;
  [[nodiscard]] bool vanished() const override { return peer_vanished(socket_.fd()); }
  void shut_down() noexcept override;
  void abandon_after_fork() noexcept override { socket_.close(); }
  [[nodiscard]] std::string description() const override { return peer_.empty() ? "tcp" : "tcp " + peer_; }

 private:
  Socket socket_;
  std::string peer_;
};

}  // namespace gpupool::wire
