#include "wire/receiver.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "wire/transport/socket_stream.h"

using namespace gpupool::wire;

namespace {

struct Pair {
  Pair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    near.emplace(Socket(fds[0]));
    far.emplace(Socket(fds[1]));
  }
  std::optional<SocketStream> near, far;
};

std::vector<std::byte> frame(std::uint16_t message, std::size_t body, std::uint16_t flags = 0) {
  FrameHeader header{static_cast<std::uint32_t>(sizeof(FrameHeader) + body), message, flags, 0, 0, 0};
  std::vector<std::byte> bytes(header.length);
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (std::size_t n = sizeof(header); n < bytes.size(); ++n) bytes[n] = static_cast<std::byte>(n);
  return bytes;
}

}  // namespace

TEST_CASE("frames come out as they went in, whatever the pieces they arrive in") {
  Pair pair;
  std::vector<std::byte> stream;
  const std::size_t sizes[] = {0, 1, 100, 5000, 70000, 3};
  for (const auto size : sizes) {
    const auto bytes = frame(100, size);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  std::thread sender([&] {
    std::mt19937 random(7);
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t part = std::min<std::size_t>(stream.size() - at, 1 + random() % 999);
      REQUIRE(pair.far->send(std::span(stream).subspan(at, part)));
      at += part;
    }
  });
  Receiver receiver(*pair.near, 4096);
  for (const auto size : sizes) {
    FrameHeader header{};
    std::span<const std::byte> body;
    REQUIRE(receiver.receive(header, body));
    REQUIRE(body.size() == size);
    for (std::size_t n = 0; n < size; ++n)
      REQUIRE(body[n] == static_cast<std::byte>(n + sizeof(FrameHeader)));
  }
  sender.join();
}

TEST_CASE("payload is taken whole, from the buffer and from the socket") {
  Pair pair;
  auto bytes = frame(100, 8, flag_bulk);
  std::vector<std::byte> payload(9000, std::byte{0x5a});
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  const auto next = frame(101, 0);
  bytes.insert(bytes.end(), next.begin(), next.end());
  REQUIRE(pair.far->send(bytes));
  Receiver receiver(*pair.near, 1024);
  FrameHeader header{};
  std::span<const std::byte> body;
  REQUIRE(receiver.receive(header, body));
  std::vector<std::byte> got(5000);
  REQUIRE(receiver.take(got.data(), got.size()));
  CHECK(std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
  REQUIRE(receiver.skip(4000));
  REQUIRE(receiver.receive(header, body));
  CHECK(header.message == 101);
}

TEST_CASE("a closed peer and an impossible frame end the reading") {
  Pair pair;
  auto bytes = frame(100, 4);
  bytes.pop_back();
  REQUIRE(pair.far->send(bytes));
  pair.far.reset();
  Receiver receiver(*pair.near);
  FrameHeader header{};
  std::span<const std::byte> body;
  CHECK_FALSE(receiver.receive(header, body));

  Pair other;
  auto wrong = frame(100, 0);
  const std::uint32_t length = 0xffffffff;
  std::memcpy(wrong.data(), &length, sizeof(length));
  REQUIRE(other.far->send(wrong));
  Receiver refusing(*other.near);
  CHECK_FALSE(refusing.receive(header, body));
}
