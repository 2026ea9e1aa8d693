// What every stream promises, for each kind of stream.
#include "wire/transport/stream.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "wire/transport/local_socket.h"
#include "wire/transport/shared_memory.h"
#include "wire/transport/shared_memory_stream.h"
#include "wire/transport/socket_stream.h"

using namespace gpupool::wire;
using Clock = std::chrono::steady_clock;

namespace {

struct Pair {
  std::unique_ptr<Stream> near, far;
};

Pair tcp_pair() {
  std::uint16_t port = 0;
  std::string error;
  Socket listener = listen_tcp("127.0.0.1:0", port, error);
  REQUIRE_MESSAGE(listener, error);
  Socket near = connect_tcp("127.0.0.1:" + std::to_string(port), 5000, error);
  REQUIRE_MESSAGE(near, error);
  Socket far(accept(listener.fd(), nullptr, nullptr));
  tune(far.fd());
  return {std::make_unique<SocketStream>(std::move(near)), std::make_unique<SocketStream>(std::move(far))};
}

Pair shared_memory_pair() {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  Socket far(fds[1]);
  std::string error;
  auto near = expect_shared_memory(Socket(fds[0]));
  auto offered = SharedMemoryStream::offer(far, error, 64 << 10);
  REQUIRE_MESSAGE(offered, error);
  CHECK_FALSE(near->readable(0));
  return {std::move(near), std::move(offered)};
}

using MakePair = Pair (*)();
constexpr MakePair kinds[] = {tcp_pair, shared_memory_pair};

std::vector<std::byte> pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t n = 0; n < count; ++n) bytes[n] = static_cast<std::byte>(n * 2654435761u >> 13);
  return bytes;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("what is sent in parts of any size is received in parts of any size, both ways at once") {
  for (const MakePair make : kinds) {
    Pair pair = make();
    const auto bytes = pattern(9'000'000);
    const auto sends = [&bytes](Stream& stream, unsigned seed) {
      std::mt19937 random(seed);
      for (std::size_t at = 0; at < bytes.size();) {
        iovec parts[3];
        for (auto& part : parts) {
          const std::size_t size = std::min<std::size_t>(bytes.size() - at, random() % 300'000);
          part = {const_cast<std::byte*>(bytes.data()) + at, size};
          at += size;
        }
        if (!stream.send_parts(parts, 3, at < bytes.size() && random() % 2 == 0)) return;
      }
    };
    const auto receives = [&bytes](Stream& stream, unsigned seed) {
      std::mt19937 random(seed);
      std::vector<std::byte> got(bytes.size());
      for (std::size_t at = 0; at < got.size();) {
        const std::size_t room = std::min<std::size_t>(got.size() - at, 1 + random() % 400'000);
        if (random() % 2 == 0) {
          if (!stream.receive(got.data() + at, room)) return false;
          at += room;
        } else {
          const std::size_t some = stream.receive_some(got.data() + at, room);
          if (some == 0) return false;
          at += some;
        }
      }
      return got == bytes;
    };
    std::thread up([&] { sends(*pair.near, 1); });
    std::thread down([&] { sends(*pair.far, 2); });
    bool right_above = false;
    std::thread reader([&] { right_above = receives(*pair.near, 3); });
    CHECK(receives(*pair.far, 4));
    reader.join();
    up.join();
    down.join();
    CHECK(right_above);
  }
}

TEST_CASE("readable waits as long as it was told, and for no longer than until there is something") {
  for (const MakePair make : kinds) {
    Pair pair = make();
    const auto start = Clock::now();
    CHECK_FALSE(pair.near->readable(30));
    CHECK(seconds_since(start) >= 0.029);
    CHECK_FALSE(pair.near->readable(0));
    CHECK_FALSE(pair.near->holds_unread());
    const std::byte one{7};
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(pair.far->send({&one, 1}));
    });
    CHECK(pair.near->readable(10'000));
    late.join();
    CHECK(pair.near->readable(0));
    CHECK(pair.near->holds_unread());
    std::byte got{};
    CHECK(pair.near->receive(&got, 1));
    CHECK(got == one);
    CHECK_FALSE(pair.near->holds_unread());
  }
}

TEST_CASE("a reader that waits is woken by shut_down in another thread") {
  for (const MakePair make : kinds) {
    Pair pair = make();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      pair.near->shut_down();
    });
    std::byte got{};
    CHECK(pair.near->receive_some(&got, 1) == 0);
    later.join();
    CHECK_FALSE(pair.near->send({&got, 1}));
  }
}

TEST_CASE("a writer that waits for room is woken by the end of its peer") {
  for (const MakePair make : kinds) {
    Pair pair = make();
    const std::vector<std::byte> much(64 << 20);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      pair.far.reset();
    });
    CHECK_FALSE(pair.near->send(much));
    later.join();
    CHECK(pair.near->hung_up());
  }
}

TEST_CASE("what a peer sent before it left is received, and then the end") {
  for (const MakePair make : kinds) {
    Pair pair = make();
    const auto bytes = pattern(5000);
    CHECK_FALSE(pair.near->hung_up());
    REQUIRE(pair.far->send(bytes));
    pair.far.reset();
    CHECK(pair.near->hung_up());
    std::vector<std::byte> got(bytes.size());
    CHECK(pair.near->receive(got.data(), got.size()));
    CHECK(got == bytes);
    CHECK(pair.near->readable(5000));
    CHECK(pair.near->receive_some(got.data(), 1) == 0);
  }
}

TEST_CASE("a reader that waits over shared memory sees that its peer was killed") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    Socket far(fds[1]);
    std::string error;
    const auto stream = SharedMemoryStream::offer(far, error);
    const std::byte ready{1};
    if (stream == nullptr || !stream->send({&ready, 1})) _exit(1);
    pause();
    _exit(0);
  }
  close(fds[1]);
  auto near = expect_shared_memory(Socket(fds[0]));
  std::byte got{};
  REQUIRE(near->receive(&got, 1));
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(child, SIGKILL);
  });
  CHECK(near->receive_some(&got, 1) == 0);
  killer.join();
  waitpid(child, nullptr, 0);
}

TEST_CASE("memory that could be taken away is refused") {
  std::string error;
  const auto announced = [&](int fd, std::uint64_t ring) {
    return SharedMemory::map(Socket(fd), ring, error).has_value();
  };
  constexpr std::uint64_t ring = 4096;
  constexpr off_t whole = SharedMemory::header_bytes + 2 * ring;
  const auto memfd = [](off_t size, int seals) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(ftruncate(fd, size) == 0);
    REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
  };
  constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  CHECK(announced(memfd(whole, all), ring));
  CHECK_FALSE(announced(memfd(whole, F_SEAL_GROW), ring));  // could be cut short
  CHECK_FALSE(announced(memfd(whole, F_SEAL_SHRINK), ring));
  CHECK_FALSE(announced(memfd(whole - 1, all), ring));
  CHECK_FALSE(announced(memfd(whole, all), 2 * ring));
  CHECK_FALSE(announced(memfd(whole, all), ring + 1));
  CHECK_FALSE(announced(memfd(whole, all), 0));
  CHECK_FALSE(announced(memfd(whole, all), ~std::uint64_t{0}));
  CHECK_FALSE(announced(open("/proc/self/exe", O_RDONLY), ring));
  CHECK_FALSE(announced(-1, ring));
}

TEST_CASE("an answer without memory ends the stream") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  Socket far(fds[1]);
  auto near = expect_shared_memory(Socket(fds[0]));
  const auto bytes = pattern(100);
  REQUIRE(send_all(far.fd(), bytes));
  std::byte got{};
  CHECK(near->receive_some(&got, 1) == 0);
}
