#include "wire/transport/shared_memory_stream.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>

#include "base/futex.h"
#include "base/quiet_thread.h"

namespace gpupool::wire {
namespace {

using Clock = std::chrono::steady_clock;

// An answer on the same machine comes after one microsecond, waking for it costs several.
constexpr std::chrono::microseconds spin_time(20);

RingIndices& indices(const SharedMemory& memory, std::size_t ring) {
  return *reinterpret_cast<RingIndices*>(memory.at() + ring * sizeof(RingIndices));
}
std::byte* data(const SharedMemory& memory, std::size_t ring) {
  return memory.at() + SharedMemory::header_bytes + ring * memory.ring_bytes();
}

constexpr std::size_t to_worker = 0, to_client = 1;
std::size_t incoming(SharedMemoryStream::Side side) {
  return side == SharedMemoryStream::Side::worker ? to_worker : to_client;
}
std::size_t outgoing(SharedMemoryStream::Side side) {
  return side == SharedMemoryStream::Side::worker ? to_client : to_worker;
}

}  // namespace

SharedMemoryStream::SharedMemoryStream(Socket socket, SharedMemory memory, Side side)
    : socket_(std::move(socket)),
      memory_(std::move(memory)),
      reader_(indices(memory_, incoming(side)), data(memory_, incoming(side)), memory_.ring_bytes()),
      writer_(indices(memory_, outgoing(side)), data(memory_, outgoing(side)), memory_.ring_bytes()),
      reading_(spin_time),
      writing_(spin_time) {
  watcher_ = quiet_thread([this] { watch(); });
}

SharedMemoryStream::~SharedMemoryStream() {
  if (!socket_) return;  // given up in a forked child, which has no watcher
  shut_down();
  watcher_.join();
}

std::unique_ptr<Stream> SharedMemoryStream::offer(Socket& socket, std::string& error,
                                                  std::uint64_t ring_bytes) {
  auto memory = SharedMemory::make(ring_bytes, error);
  if (!memory) return nullptr;
  if (!memory->send(socket.fd())) {
    error = "the client was gone before it could be told of its shared memory";
    return nullptr;
  }
  return std::make_unique<SharedMemoryStream>(std::move(socket), std::move(*memory), Side::worker);
}

/// A futex cannot be waited for together with a socket, so a thread of its own waits for the socket.
void SharedMemoryStream::watch() {
  prctl(PR_SET_NAME, "gpupool-watch");
  pollfd state{socket_.fd(), POLLRDHUP, 0};
  while (poll(&state, 1, -1) < 0 && errno == EINTR) {
  }
  end();
}

void SharedMemoryStream::end() noexcept {
  ended_.store(true, std::memory_order_seq_cst);
  for (auto* word : {&reader_.sleep_word(), &writer_.sleep_word()}) {
    word->store(0, std::memory_order_seq_cst);
    futex_wake(*word);
  }
}

template <class Ready>
bool SharedMemoryStream::wait(std::atomic<std::uint32_t>& word, Patience& patience, int timeout_ms,
                              Ready ready) {
  const auto done = [&] { return ready() || ended_.load(std::memory_order_acquire); };
  if (done()) return true;
  if (timeout_ms == 0) return false;
  if (patience.spin(done)) return true;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    word.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (done()) break;
    std::int64_t left = -1;
    if (timeout_ms > 0) {
      left = std::chrono::nanoseconds(deadline - Clock::now()).count();
      if (left <= 0) return false;
    }
    futex_wait(word, 1, left);
    if (done()) break;
  }
  return true;
}

bool SharedMemoryStream::send_parts(iovec* parts, int count, bool more_follows) {
  for (; count > 0; ++parts, --count) {
    const auto* at = static_cast<const std::byte*>(parts->iov_base);
    for (std::size_t left = parts->iov_len; left > 0;) {
      if (ended_.load(std::memory_order_acquire)) return false;
      const std::size_t sent = writer_.write_some(at, left);
      at += sent;
      left -= sent;
      if (writer_.broken()) {
        shut_down();
        return false;
      }
      if (sent == 0) {
        writer_.wake_reader();  // there is no room until it has read
        static_cast<void>(wait(writer_.sleep_word(), writing_, for_ever,
                               [this] { return writer_.room() > 0 || writer_.broken(); }));
      } else if (left > 0) {
        writer_.wake_reader();  // it copies while this does
      }
    }
  }
  if (!more_follows) writer_.wake_reader();
  return true;
}

std::size_t SharedMemoryStream::receive_some(void* into, std::size_t room) {
  while (true) {
    const bool over = ended_.load(std::memory_order_acquire);  // before looking: what was sent comes first
    const std::size_t got = reader_.read_some(into, room);
    if (got > 0) return got;
    if (reader_.broken()) shut_down();
    if (over || reader_.broken()) return 0;
    static_cast<void>(wait(reader_.sleep_word(), reading_, for_ever,
                           [this] { return reader_.available() > 0 || reader_.broken(); }));
  }
}

bool SharedMemoryStream::readable(int timeout_ms) {
  return wait(reader_.sleep_word(), reading_, timeout_ms,
              [this] { return reader_.available() > 0 || reader_.broken(); });
}

bool SharedMemoryStream::hung_up() const {
  return peer_closed(socket_.fd());
}

void SharedMemoryStream::shut_down() noexcept {
  shutdown(socket_.fd(), SHUT_RDWR);
  end();
}

void SharedMemoryStream::abandon_after_fork() noexcept {
  socket_.close();
  ended_.store(true);
  // The thread is the parent's; the object that stands for it must not be joined.
  new (&watcher_) std::thread();
}

}  // namespace gpupool::wire
