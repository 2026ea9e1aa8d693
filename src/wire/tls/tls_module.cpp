#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "wire/tls/tls_api.h"

namespace gpupool::tls {

struct Identity {
  SSL_CTX* context = nullptr;
};

struct Session {
  SSL* ssl = nullptr;
  SSL_CTX* context = nullptr;  // the client's own; null at the worker
  std::uint8_t expected[32]{};
  bool wrong = false;
  std::uint64_t records = 0;  // written with the present key
  bool unfinished = false;    // a write has to be made once more; until then no key may change
  std::string error;
};

namespace {

/// A key of AES-GCM is good for 2^24.5 records (RFC 8446, 5.5), and OpenSSL changes none by itself. A change
/// costs some microseconds, so it comes much earlier: every 16 MiB, and not only on connections that nobody
/// tests.
constexpr std::uint64_t records_of_a_key = 1u << 10;

void start() {
  // No configuration file and no work at exit: other threads of the process may still be at it then.
  static const int once = OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  static_cast<void>(once);
}

/// As OpenSSL's own for sockets, but a peer that is gone raises no SIGPIPE in a program that is not ours.
int socket_write(BIO* bio, const char* from, int size) {
  int fd = -1;
  BIO_get_fd(bio, &fd);
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(fd, from, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    const BIO_METHOD* const base = BIO_s_socket();
    BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOCKET, "socket without signals");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, socket_write);
    BIO_meth_set_read(made, BIO_meth_get_read(base));
    BIO_meth_set_ctrl(made, BIO_meth_get_ctrl(base));
    BIO_meth_set_create(made, BIO_meth_get_create(base));
    BIO_meth_set_destroy(made, BIO_meth_get_destroy(base));
    return made;
  }();
  return method;
}

void limit(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(context,
                          0);  // nothing is resumed, and nothing comes that is not the stream's bytes
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
}

bool digest(X509* certificate, std::uint8_t out[32]) {
  unsigned size = 0;
  unsigned char bytes[EVP_MAX_MD_SIZE];
  if (X509_digest(certificate, EVP_sha256(), bytes, &size) != 1 || size != 32) return false;
  std::memcpy(out, bytes, 32);
  return true;
}

/// The only rule: it is the certificate that the pool told of. Names, dates and issuers mean nothing here.
int check_certificate(X509_STORE_CTX* store, void*) {
  const auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const session = static_cast<Session*>(SSL_get_app_data(ssl));
  X509* const shown = X509_STORE_CTX_get0_cert(store);
  std::uint8_t found[32];
  const bool right =
      shown != nullptr && digest(shown, found) && CRYPTO_memcmp(found, session->expected, sizeof(found)) == 0;
  session->wrong = !right;
  return right ? 1 : 0;
}

X509* self_signed(EVP_PKEY* key) {
  constexpr long lifetime_s = 366L * 24 * 3600;  // longer than any worker; only the fingerprint counts
  X509* const certificate = X509_new();
  if (certificate == nullptr) return nullptr;
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* const text = reinterpret_cast<const unsigned char*>("gpupool-worker");
  if (X509_set_version(certificate, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(certificate), -3600) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(certificate), lifetime_s) != nullptr &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
      X509_set_issuer_name(certificate, name) == 1 && X509_set_pubkey(certificate, key) == 1 &&
      X509_sign(certificate, key, EVP_sha256()) > 0) {
    return certificate;
  }
  X509_free(certificate);
  return nullptr;
}

Identity* make_identity(std::uint8_t fingerprint[32]) {
  start();
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = key != nullptr ? self_signed(key) : nullptr;
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  Identity* made = nullptr;
  if (certificate != nullptr && context != nullptr && digest(certificate, fingerprint) &&
      SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1) {
    limit(context);
    made = new (std::nothrow) Identity{context};
  }
  if (made == nullptr) SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return made;
}

void free_identity(Identity* identity) {
  if (identity == nullptr) return;
  SSL_CTX_free(identity->context);
  delete identity;
}

void free_session(Session* session) {
  if (session == nullptr) return;
  SSL_free(session->ssl);
  SSL_CTX_free(session->context);
  delete session;
}

bool attach(Session& session, SSL_CTX* context, int fd) {
  BIO_METHOD* const method = socket_method();
  BIO* const bio = method != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr) return false;
  BIO_set_fd(bio, fd, BIO_NOCLOSE);
  session.ssl = SSL_new(context);
  if (session.ssl == nullptr) {
    BIO_free(bio);
    return false;
  }
  SSL_set_bio(session.ssl, bio, bio);
  SSL_set_app_data(session.ssl, &session);
  return true;
}

Session* accept(Identity* identity, int fd) {
  auto* const session = new (std::nothrow) Session;
  if (session == nullptr) return nullptr;
  if (!attach(*session, identity->context, fd)) {
    free_session(session);
    return nullptr;
  }
  SSL_set_accept_state(session->ssl);
  return session;
}

Session* connect(int fd, const std::uint8_t fingerprint[32]) {
  start();
  auto* const session = new (std::nothrow) Session;
  if (session == nullptr) return nullptr;
  std::memcpy(session->expected, fingerprint, sizeof(session->expected));
  session->context = SSL_CTX_new(TLS_client_method());
  if (session->context != nullptr) {
    limit(session->context);
    SSL_CTX_set_verify(session->context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(session->context, check_certificate, nullptr);
  }
  if (session->context == nullptr || !attach(*session, session->context, fd)) {
    free_session(session);
    return nullptr;
  }
  SSL_set_connect_state(session->ssl);
  return session;
}

long outcome(Session& session, int result) {
  switch (SSL_get_error(session.ssl, result)) {
    case SSL_ERROR_WANT_READ:
      return want_read;
    case SSL_ERROR_WANT_WRITE:
      return want_write;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      break;
  }
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  try {
    session.error = reason != nullptr ? reason : "the connection was closed";
  } catch (const std::bad_alloc&) {  // then without words
  }
  ERR_clear_error();
  return failed;
}

long handshake(Session* session) {
  ERR_clear_error();
  const int result = SSL_do_handshake(session->ssl);
  if (result == 1) return 0;
  const long why = outcome(*session, result);
  return why == 0 ? failed : why;
}

long read(Session* session, void* into, std::size_t room) {
  ERR_clear_error();
  const int result = SSL_read(session->ssl, into, static_cast<int>(std::min<std::size_t>(room, INT_MAX)));
  return result > 0 ? result : outcome(*session, result);
}

long write(Session* session, const void* from, std::size_t size) {
  ERR_clear_error();
  if (session->records >= records_of_a_key && !session->unfinished) {
    session->records = 0;
    // This write sends it, just before its bytes. Alone it would wake a peer that then waits for bytes which
    // nobody sends.
    SSL_key_update(session->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  const int result = SSL_write(session->ssl, from, static_cast<int>(std::min<std::size_t>(size, INT_MAX)));
  if (result <= 0) {
    session->unfinished = true;
    const long why = outcome(*session, result);
    return why == 0 ? failed : why;
  }
  session->unfinished = false;
  session->records += 1 + (static_cast<std::uint64_t>(result) - 1) / SSL3_RT_MAX_PLAIN_LENGTH;
  return result;
}

std::size_t pending(Session* session) {
  return static_cast<std::size_t>(SSL_pending(session->ssl));
}
bool wrong_certificate(const Session* session) {
  return session->wrong;
}
const char* error(const Session* session) {
  return session->error.c_str();
}

constexpr Api api{make_identity, free_identity,     accept, connect,     handshake, read, write,
                  pending,       wrong_certificate, error,  free_session};

}  // namespace
}  // namespace gpupool::tls

extern "C" __attribute__((visibility("default"))) const gpupool::tls::Api* gpupool_tls_api_2() {
  return &gpupool::tls::api;
}
