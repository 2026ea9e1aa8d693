#include "wire/transport/emulated_stream.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "wire/transport/socket_stream.h"

using namespace gpupool::wire;
using Clock = std::chrono::steady_clock;

namespace {

struct Pair {
  explicit Pair(LinkQuality quality) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    near = std::make_unique<EmulatedStream>(std::make_unique<SocketStream>(Socket(fds[0])), quality);
    far = std::make_unique<SocketStream>(Socket(fds[1]));
  }
  std::unique_ptr<Stream> near, far;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

LinkQuality quality(std::string_view text) {
  std::string error;
  const auto read = LinkQuality::parse(text, error);
  REQUIRE_MESSAGE(read, error);
  return *read;
}

}  // namespace

TEST_CASE("a network is written as delay and bandwidth") {
  CHECK(quality("delay_us=250,mbit=1000").delay.count() == 250);
  CHECK(quality("delay_us=250,mbit=1000").mbit == 1000);
  CHECK(quality("mbit=10").delay.count() == 0);
  CHECK(quality("").mbit == 0);
  std::string error;
  for (const char* wrong :
       {"delay=1", "delay_us", "delay_us=", "delay_us=-1", "delay_us=1ms", "mbit=99999999999", ","})
    CHECK_FALSE(LinkQuality::parse(wrong, error));
}

TEST_CASE("a round trip takes twice the delay") {
  // Long beside the moments for which a busy machine keeps a thread waiting.
  Pair pair(quality("delay_us=500000"));
  const auto start = Clock::now();
  std::byte byte{9};
  REQUIRE(pair.near->send({&byte, 1}));
  CHECK_FALSE(pair.far->readable(0));  // sending does not wait for the network
  REQUIRE(pair.far->receive(&byte, 1));
  CHECK(ms_since(start) >= 500);
  REQUIRE(pair.far->send({&byte, 1}));
  CHECK_FALSE(pair.near->readable(5));
  CHECK(pair.near->readable(60'000));
  REQUIRE(pair.near->receive(&byte, 1));
  CHECK(ms_since(start) >= 1000);
}

TEST_CASE("many sends are under way at the same time") {
  Pair pair(quality("delay_us=100000"));
  const auto start = Clock::now();
  for (int n = 0; n < 200; ++n) {
    const auto byte = static_cast<std::byte>(n);
    REQUIRE(pair.near->send({&byte, 1}));
  }
  std::vector<std::byte> got(200);
  REQUIRE(pair.far->receive(got.data(), got.size()));
  for (int n = 0; n < 200; ++n) CHECK(got[static_cast<std::size_t>(n)] == static_cast<std::byte>(n));
  CHECK(ms_since(start) >= 100);
  CHECK(ms_since(start) < 10'000);  // one after the other would be twenty seconds
}

TEST_CASE("bandwidth is shared by all bytes, and everything arrives as it was sent") {
  Pair pair(quality("delay_us=1000,mbit=400"));
  std::vector<std::byte> sent(5'000'000), got(sent.size());
  for (std::size_t n = 0; n < sent.size(); ++n) sent[n] = static_cast<std::byte>(n * 31 >> 5);
  const auto start = Clock::now();
  std::thread sender([&] { CHECK(pair.near->send(sent)); });
  REQUIRE(pair.far->receive(got.data(), got.size()));
  CHECK(ms_since(start) >= 100);  // 40 million bits at 400 million in a second
  CHECK(got == sent);
  sender.join();
}

TEST_CASE("what was sent before the end arrives before the end, in both directions") {
  Pair pair(quality("delay_us=10000"));
  std::vector<std::byte> bytes(100'000, std::byte{3}), got(bytes.size());
  REQUIRE(pair.far->send(bytes));
  REQUIRE(pair.near->send(bytes));
  SUBCASE("the near end leaves") {
    pair.near.reset();
    REQUIRE(pair.far->receive(got.data(), got.size()));
    CHECK(got == bytes);
    CHECK(pair.far->receive_some(got.data(), 1) == 0);
  }
  SUBCASE("the far end leaves") {
    pair.far.reset();
    REQUIRE(pair.near->receive(got.data(), got.size()));
    CHECK(got == bytes);
    CHECK(pair.near->receive_some(got.data(), 1) == 0);
  }
}
