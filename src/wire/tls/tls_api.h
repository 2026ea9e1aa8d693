// What the TLS module offers. It is a library of its own, opened when a connection needs it, with OpenSSL
// inside and none of its symbols visible: the process it comes into may have another OpenSSL already.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpupool::tls {

struct Identity;  ///< a worker's key and certificate
struct Session;   ///< one connection

/// Results below zero; others count bytes.
inline constexpr long want_read = -1;
inline constexpr long want_write = -2;
inline constexpr long failed = -3;

/// One thread at a time for each session. Sockets are non-blocking and stay the caller's.
struct Api {
  /// A fresh key that nobody else ever has, with a certificate signed by itself.
  Identity* (*make_identity)(std::uint8_t fingerprint[32]);
  /// Sessions that it accepted may outlive it.
  void (*free_identity)(Identity* identity);
  Session* (*accept)(Identity* identity, int fd);
  /// A session that goes on only with the one certificate of this SHA-256 fingerprint.
  Session* (*connect)(int fd, const std::uint8_t fingerprint[32]);
  /// 0: done; want_read, want_write or failed.
  long (*handshake)(Session* session);
  /// 0: the peer has ended the session.
  long (*read)(Session* session, void* into, std::size_t room);
  long (*write)(Session* session, const void* from, std::size_t size);
  /// Bytes that can be read without the socket.
  std::size_t (*pending)(Session* session);
  /// Why the handshake failed: another certificate than the expected one.
  bool (*wrong_certificate)(const Session* session);
  /// The last error in words.
  const char* (*error)(const Session* session);
  void (*free_session)(Session* session);
};

inline constexpr const char* entry_name = "gpupool_tls_api_2";
using Entry = const Api* (*)();

}  // namespace gpupool::tls
