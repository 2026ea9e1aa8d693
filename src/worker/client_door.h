// Listens for clients and lets in those who know the token.
#pragma once

#include <cstdint>
#include <list>
#include <string>

#include "wire/socket.h"
#include "worker/client_seat.h"
#include "worker/handshake.h"
#include "worker/session_contract.h"

namespace gpupool::worker {

/// Strangers cost at most kMaxPending sockets and 4 KiB each, for at most kHandshakeMs.
class ClientDoor {
 public:
  static constexpr std::size_t kMaxPending = 32;
  static constexpr std::int64_t kHandshakeMs = 5000;

  /// Listens on `address` (host:port). Throws std::runtime_error.
  ClientDoor(const std::string& address, const WorkerState& state, ClientSeat& seat);

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Accepts for ever.
  [[noreturn]] void run();

 private:
  struct Visitor {
    wire::Socket socket;
    Handshake handshake;
    std::int64_t deadline_ns;
  };

  void accept_one();
  /// True when the visitor is decided and its entry can go.
  bool read_from(Visitor& visitor);

  const WorkerState& state_;
  ClientSeat& seat_;
  std::uint16_t port_ = 0;
  wire::Socket listener_;
  std::list<Visitor> visitors_;  // oldest first
};

}  // namespace gpupool::worker
