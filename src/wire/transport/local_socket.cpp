#include "wire/transport/local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/mutex.h"
#include "wire/transport/shared_memory_stream.h"

namespace gpupool::wire {
namespace {

constexpr int hello_timeout_s = 10;

bool address_of(const std::string& path, sockaddr_un& address, std::string& error) {
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    error = "the path of a Unix socket has 1 to " + std::to_string(sizeof(address.sun_path) - 1) +
            " characters, this has " + std::to_string(path.size());
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

void remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const Socket trial(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(trial.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
}

class AwaitingMemory final : public Stream {
 public:
  explicit AwaitingMemory(Socket socket) : socket_(std::move(socket)) {}
  ~AwaitingMemory() override { delete stream_.load(); }

  using Stream::send_parts;
  [[nodiscard]] bool send_parts(iovec* parts, int count, bool more_follows) override {
    Stream* const stream = stream_.load(std::memory_order_acquire);
    return stream != nullptr ? stream->send_parts(parts, count, more_follows)
                             : send_all(socket_.fd(), parts, count, more_follows);
  }
  [[nodiscard]] std::size_t receive_some(void* into, std::size_t room) override {
    Stream* const stream = arrived();
    return stream != nullptr ? stream->receive_some(into, room) : 0;
  }
  [[nodiscard]] bool readable(int timeout_ms) override {
    Stream* stream = stream_.load(std::memory_order_acquire);
    if (stream == nullptr) {
      if (!wait_readable(socket_.fd(), timeout_ms)) return false;
      stream = arrived();
    }
    return stream == nullptr || stream->readable(timeout_ms);
  }
  [[nodiscard]] bool holds_unread() override {
    Stream* const stream = stream_.load(std::memory_order_acquire);
    return stream != nullptr && stream->holds_unread();
  }
  [[nodiscard]] bool hung_up() const override {
    const Stream* const stream = stream_.load(std::memory_order_acquire);
    return stream != nullptr ? stream->hung_up() : peer_closed(socket_.fd());
  }
  void shut_down() noexcept override {
    Stream* const stream = stream_.load(std::memory_order_acquire);
    if (stream != nullptr) stream->shut_down();
    if (stream == nullptr) shutdown(socket_.fd(), SHUT_RDWR);
  }
  void abandon_after_fork() noexcept override {
    Stream* const stream = stream_.load(std::memory_order_acquire);
    if (stream != nullptr) stream->abandon_after_fork();
    socket_.close();
  }
  [[nodiscard]] std::string description() const override { return "shared memory"; }

 private:
  /// The stream that the answer brought, waiting for it if need be; null when there was none.
  Stream* arrived() {
    Stream* stream = stream_.load(std::memory_order_acquire);
    if (stream != nullptr) return stream;
    const MutexLock lock(arriving_);
    stream = stream_.load(std::memory_order_acquire);
    if (stream != nullptr || failed_) return stream;
    std::string error;
    auto memory = SharedMemory::receive(socket_.fd(), error);
    if (!memory) {
      failed_ = true;
      return nullptr;
    }
    // A descriptor of its own, because this socket may be in use by shut_down in another thread just now.
    Socket own(fcntl(socket_.fd(), F_DUPFD_CLOEXEC, 3));
    if (!own) {
      failed_ = true;
      return nullptr;
    }
    stream = new SharedMemoryStream(std::move(own), std::move(*memory), SharedMemoryStream::Side::client);
    stream_.store(stream, std::memory_order_release);
    return stream;
  }

  Socket socket_;
  Mutex arriving_;
  bool failed_ GUARDED_BY(arriving_) = false;
  std::atomic<Stream*> stream_{nullptr};
};

}  // namespace

std::optional<uid_t> peer_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

std::optional<pid_t> peer_process(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.pid;
}

Socket listen_local(const std::string& path, std::string& error) {
  sockaddr_un address{};
  if (!address_of(path, address, error)) return {};
  remove_stale(path, address);
  Socket listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t before = umask(0177);  // the file must never exist with a wider mode
  const bool bound =
      listener && bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int bind_error = errno;
  umask(before);
  if (!bound || listen(listener.fd(), 16) != 0) {
    error = "cannot listen on " + path + ": " + std::strerror(bound ? errno : bind_error);
    return {};
  }
  return listener;
}

Socket connect_local(const std::string& path, std::string& error) {
  sockaddr_un address{};
  if (!address_of(path, address, error)) return {};
  Socket made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{hello_timeout_s, 0};  // for a worker whose queue of visitors is full
  if (made) setsockopt(made.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (!made || connect(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    error = "cannot connect to " + path + ": " + std::strerror(errno);
    return {};
  }
  const auto peer = peer_user(made.fd());
  if (peer != geteuid() && peer != uid_t{0}) {
    error = "the socket at " + path + " belongs to another user";
    return {};
  }
  return made;
}

std::unique_ptr<Stream> expect_shared_memory(Socket socket) {
  return std::make_unique<AwaitingMemory>(std::move(socket));
}

}  // namespace gpupool::wire
