// A stream over TCP that is encrypted with TLS 1.3. The worker shows a certificate that it made itself at its
// start; the client knows its fingerprint from the pool and accepts nothing else.
#pragma once

#include <memory>
#include <string>

#include "base/mutex.h"
#include "wire/tls/tls_api.h"
#include "wire/transport/socket.h"
#include "wire/transport/stream.h"
#include "wire/transport/worker_address.h"

namespace gpupool::wire {

/// The worker's key and certificate.
class TlsIdentity {
 public:
  /// Throws std::runtime_error.
  TlsIdentity();
  [[nodiscard]] std::string fingerprint_hex() const;

 private:
  friend class TlsStream;
  struct Free {
    const tls::Api* api;
    void operator()(tls::Identity* identity) const { api->free_identity(identity); }
  };

  const tls::Api& api_;
  Fingerprint fingerprint_{};  // before the identity, whose making fills it
  std::unique_ptr<tls::Identity, Free> identity_;
};

class TlsStream final : public Stream {
 public:
  /// The client's end, after the handshake. Null and `error` on failure: then nothing secret has been sent.
  static std::unique_ptr<Stream> connect(Socket socket, const Fingerprint& fingerprint,
                                         const std::string& peer, int timeout_ms, std::string& error);
  /// The worker's end, before the handshake.
  static std::unique_ptr<TlsStream> accept(Socket& socket, const TlsIdentity& identity);
  ~TlsStream() override;

  /// For who must not block: goes on with the handshake, or reads; 0 when the handshake is done, or at the
  /// end.
  long try_handshake() { return api_.handshake(session_); }
  long try_read(void* into, std::size_t room) { return api_.read(session_, into, room); }
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] std::string failure() const { return api_.error(session_); }

  using Stream::send_parts;
  [[nodiscard]] bool send_parts(iovec* parts, int count, bool more_follows) override;
  [[nodiscard]] std::size_t receive_some(void* into, std::size_t room) override;
  [[nodiscard]] bool readable(int timeout_ms) override;
  [[nodiscard]] bool holds_unread() override;
  [[nodiscard]] bool hung_up() const override { return peer_closed(socket_.fd()); }
  [[nodiscard]] bool vanished() const override { return peer_vanished(socket_.fd()); }
  void shut_down() noexcept override;
  void abandon_after_fork() noexcept override { socket_.close(); }
  [[nodiscard]] std::string description() const override { return "tls " + peer_; }

 private:
  TlsStream(const tls::Api& api, tls::Session* session, Socket socket, std::string peer);
  bool send_bytes(const void* from, std::size_t size);
  bool wait(long wanted) const;

  const tls::Api& api_;
  tls::Session* session_;
  Mutex
      using_session_;  // around calls of api_ once several threads use this; not while waiting for the socket
  Socket socket_;      // non-blocking
  std::string peer_;
};

/// The TLS module beside this program or library; null and `error` when it cannot be opened.
const tls::Api* tls_module(std::string& error);

}  // namespace gpupool::wire
