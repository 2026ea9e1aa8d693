// Listens for clients and lets in those who know the token.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "wire/socket.h"
#include "wire/stream.h"
#include "worker/client_seat.h"
#include "worker/handshake.h"
#include "worker/session_contract.h"

namespace gpupool::worker {

/// Strangers cost at most kMaxPending sockets and 4 KiB each, for at most kHandshakeMs.
class ClientDoor {
 public:
  static constexpr std::size_t kMaxPending = 32;
  static constexpr std::int64_t kHandshakeMs = 5000;

  /// Listens on `address` (host:port), and for clients of this machine on a Unix socket at `local` unless
  /// that is empty. Throws std::runtime_error.
  ClientDoor(const std::string& address, const std::string& local, const WorkerState& state,
             ClientSeat& seat);

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Accepts for ever.
  [[noreturn]] void run();

 private:
  struct Visitor {
    wire::Socket socket;
    bool local;  ///< came through the Unix socket: to be given shared memory
    Handshake handshake;
    std::int64_t deadline_ns;
  };

  void accept_one(const wire::Socket& listener, bool local);
  std::unique_ptr<wire::Stream> stream_of(Visitor& visitor);
  /// True when the visitor is decided and its entry can go.
  bool read_from(Visitor& visitor);

  const WorkerState& state_;
  ClientSeat& seat_;
  std::uint16_t port_ = 0;
  wire::Socket listener_;
  wire::Socket local_listener_;  // empty: none
  std::list<Visitor> visitors_;  // oldest first
};

}  // namespace gpupool::worker
