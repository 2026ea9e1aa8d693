#include "wire/transport/tls_stream.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/mutex.h"

namespace gpupool::wire {
namespace {

constexpr std::size_t record_bytes = 16 << 10;  // most that one TLS record holds
constexpr int look_ms = 5000;                   // as TCP: how long to wait before asking after the peer

std::string module_path() {
  if (const char* const given = std::getenv("GPUPOOL_TLS_MODULE")) return given;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&tls_module), &self) == 0 || self.dli_fname == nullptr) return {};
  // Of the program itself this is only how it was called.
  const bool place = std::strchr(self.dli_fname, '/') != nullptr;
  char* const real = realpath(place ? self.dli_fname : "/proc/self/exe", nullptr);
  std::string path = real != nullptr ? real : "";
  std::free(real);
  for (int up = 0; up < 2; ++up) path.resize(std::min(path.rfind('/'), path.size()));
  return path + "/tls/libgpupool_tls.so";
}

const tls::Api* open_module(std::string& error) {
  const std::string path = module_path();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto entry =
      library != nullptr ? reinterpret_cast<tls::Entry>(dlsym(library, tls::entry_name)) : nullptr;
  if (entry != nullptr) return entry();
  const char* const why = dlerror();
  error = std::string("the TLS module cannot be opened: ") + (why != nullptr ? why : path.c_str());
  return nullptr;
}

const tls::Api& needed_module() {
  std::string error;
  const tls::Api* const api = tls_module(error);
  if (api == nullptr) throw std::runtime_error(error);
  return *api;
}

void make_nonblocking(const Socket& socket) {
  fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) | O_NONBLOCK);
}

short events_of(long wanted) {
  return wanted == tls::want_write ? POLLOUT : POLLIN;
}

}  // namespace

const tls::Api* tls_module(std::string& error) {
  // A failure is not kept: a process that has no descriptor now may have one later.
  static Mutex mutex;
  static const tls::Api* api = nullptr;
  const MutexLock lock(mutex);
  if (api == nullptr) api = open_module(error);
  return api;
}

TlsIdentity::TlsIdentity()
    : api_(needed_module()), identity_(api_.make_identity(fingerprint_.data()), Free{&api_}) {
  if (identity_ == nullptr) throw std::runtime_error("no TLS key could be made");
}

std::string TlsIdentity::fingerprint_hex() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : fingerprint_) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

TlsStream::TlsStream(const tls::Api& api, tls::Session* session, Socket socket, std::string peer)
    : api_(api), session_(session), socket_(std::move(socket)), peer_(std::move(peer)) {}

TlsStream::~TlsStream() {
  api_.free_session(session_);
}

std::unique_ptr<TlsStream> TlsStream::accept(Socket& socket, const TlsIdentity& identity) {
  make_nonblocking(socket);
  tls::Session* const session = identity.api_.accept(identity.identity_.get(), socket.fd());
  if (session == nullptr) return nullptr;
  return std::unique_ptr<TlsStream>(new TlsStream(identity.api_, session, std::move(socket), ""));
}

std::unique_ptr<Stream> TlsStream::connect(Socket socket, const Fingerprint& fingerprint,
                                           const std::string& peer, int timeout_ms, std::string& error) {
  const tls::Api* const api = tls_module(error);
  if (api == nullptr) return nullptr;
  make_nonblocking(socket);
  tls::Session* const session = api->connect(socket.fd(), fingerprint.data());
  if (session == nullptr) {
    error = "no TLS session could be made";
    return nullptr;
  }
  std::unique_ptr<TlsStream> stream(new TlsStream(*api, session, std::move(socket), peer));
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    const long step = stream->try_handshake();
    if (step == 0) return stream;
    if (step == tls::failed) {
      error =
          api->wrong_certificate(session)
              ? "the GPU worker at " + peer + " shows another certificate than the one that the pool told of"
              : "the GPU worker at " + peer + " does not speak TLS as expected: " + stream->failure();
      return nullptr;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd state{stream->fd(), events_of(step), 0};
    if (left <= 0 || (poll(&state, 1, static_cast<int>(left)) == 0)) {
      error = "the GPU worker at " + peer + " did not finish the TLS handshake in time";
      return nullptr;
    }
  }
}

/// False: the peer is gone.
bool TlsStream::wait(long wanted) const {
  if (wanted != tls::want_read && wanted != tls::want_write) return false;
  pollfd state{socket_.fd(), events_of(wanted), 0};
  const int ready = poll(&state, 1, look_ms);
  if (ready == 0) return !peer_vanished(socket_.fd());
  return ready > 0 || errno == EINTR;
}

bool TlsStream::send_bytes(const void* from, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(from);
  while (size > 0) {
    long sent;
    {
      const MutexLock lock(using_session_);
      sent = api_.write(session_, at, size);
    }
    if (sent > 0) {
      at += sent;
      size -= static_cast<std::size_t>(sent);
    } else if (!wait(sent)) {
      return false;
    }
  }
  return true;
}

bool TlsStream::send_parts(iovec* parts, int count, bool) {
  // Small parts go into one record; large ones are encrypted from where they lie.
  std::byte together[record_bytes];
  std::size_t filled = 0;
  for (; count > 0; ++parts, --count) {
    const auto* const at = static_cast<const std::byte*>(parts->iov_base);
    const std::size_t size = parts->iov_len;
    if (size == 0) continue;
    if (size <= record_bytes - filled) {
      std::memcpy(together + filled, at, size);
      filled += size;
      continue;
    }
    if (filled > 0 && !send_bytes(together, filled)) return false;
    filled = 0;
    if (!send_bytes(at, size)) return false;
  }
  return filled == 0 || send_bytes(together, filled);
}

std::size_t TlsStream::receive_some(void* into, std::size_t room) {
  while (true) {
    long got;
    {
      const MutexLock lock(using_session_);
      got = api_.read(session_, into, room);
    }
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0 || !wait(got)) return 0;
  }
}

bool TlsStream::readable(int timeout_ms) {
  {
    const MutexLock lock(using_session_);
    if (api_.pending(session_) > 0) return true;
  }
  return wait_readable(socket_.fd(), timeout_ms);
}

bool TlsStream::holds_unread() {
  {
    const MutexLock lock(using_session_);
    if (api_.pending(session_) > 0) return true;
  }
  int unread = 0;
  return ioctl(socket_.fd(), FIONREAD, &unread) == 0 && unread > 0;
}

void TlsStream::shut_down() noexcept {
  shutdown(socket_.fd(), SHUT_RDWR);
}

}  // namespace gpupool::wire
