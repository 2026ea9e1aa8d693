// Listens for clients and lets in those who know the token.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "wire/transport/socket.h"
#include "wire/transport/stream.h"
#include "wire/transport/tls_stream.h"
#include "worker/lease/handshake.h"
#include "worker/lease/worker_state.h"
#include "worker/process/client_seat.h"
#include "worker/process/line_limit.h"

namespace gpupool::worker {

/// Whether connections over TCP are encrypted. automatic: unless only this machine can reach the door.
enum class TlsUse { automatic, on, off };

/// Strangers cost at most max_pending sockets, each with 4 KiB and what OpenSSL needs for a handshake (below
/// 200 KiB), for at most handshake_ms. If more come, the oldest of the address with most of them goes: so a
/// host that opens many connections keeps nobody else out. And they fill no disk: one line a second tells of
/// them.
class ClientDoor {
 public:
  static constexpr std::size_t max_pending = 32;
  static constexpr std::int64_t handshake_ms = 5000;

  /// Listens on `address` (host:port), and for clients of this machine on a Unix socket at `local` unless
  /// that is empty. Throws std::runtime_error.
  ClientDoor(const std::string& address, const std::string& local, TlsUse tls, const WorkerState& state,
             ClientSeat& seat);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Of the certificate that clients from elsewhere are shown, in hexadecimal; empty without TLS.
  [[nodiscard]] std::string fingerprint() const { return identity_ ? identity_->fingerprint_hex() : ""; }

  /// What becomes of a connection by which another worker takes the session over. Before run().
  void on_takeover(std::function<void(std::unique_ptr<wire::Stream>)> takeover) {
    takeover_ = std::move(takeover);
  }
  /// What ends the process once somebody has ended the session. Before run().
  void on_end(std::function<void()> ending) { ending_ = std::move(ending); }
  /// Accepts for ever.
  [[noreturn]] void run();

 private:
  using Address = std::array<std::byte, 16>;  ///< of IPv4 and Unix sockets, the rest is zeros
  struct Visitor {
    wire::Socket socket;
    bool local;  ///< came through the Unix socket: to be given shared memory
    Address from;
    std::unique_ptr<wire::TlsStream> tls;  ///< has the socket then; null without TLS
    bool shaken = false;                   ///< the TLS handshake is done
    short events = POLLIN;                 ///< what the visitor has to be waited for
    Handshake handshake;
    std::int64_t deadline_ns;
  };

  /// The oldest of an address with most visitors, when there are too many.
  std::list<Visitor>::iterator who_goes();
  void accept_one(const wire::Socket& listener, bool local);
  /// `stays`: it is for more than one answer, so worth shared memory.
  std::unique_ptr<wire::Stream> stream_of(Visitor& visitor, bool stays);
  /// As recv: the visitor's next bytes; -1 with EAGAIN when there are none yet.
  long receive(Visitor& visitor, void* into, std::size_t room);
  /// True when the visitor is decided and its entry can go.
  bool read_from(Visitor& visitor);
  /// The same two, but for what goes wrong in them.
  void welcome(const wire::Socket& listener, bool local);
  bool attend(Visitor& visitor);
  void tell_closed(const std::string& why);

  const WorkerState& state_;
  ClientSeat& seat_;
  std::uint16_t port_ = 0;
  wire::Socket listener_;
  std::optional<wire::TlsIdentity> identity_;  // for those who come over TCP
  wire::Socket local_listener_;                // empty: none
  std::list<Visitor> visitors_;                // oldest first
  LineLimit lines_;                            // of run()'s thread
  std::function<void(std::unique_ptr<wire::Stream>)> takeover_;
  std::function<void()> ending_;
};

}  // namespace gpupool::worker
