// What a client is told of the size of its shares, and asked before one becomes smaller.
#include <doctest/doctest.h>

#include <chrono>
#include <future>

#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using namespace gpupool::worker;

namespace {

constexpr std::uint64_t mib = 1u << 20;
constexpr int patience_ms = 20'000;

/// What is pushed next, which must be about a limit.
wire::ShareLimit told(SessionTestClient& client) {
  const auto push = client.next_push();
  CHECK(push.message == wire::Control::share_limit);
  wire::ShareLimit limit;
  wire::Reader in(push.fields);
  CHECK(wire::ShareLimit::decode(in, limit));
  return limit;
}

}  // namespace

TEST_CASE("a share that was resized is told before the next answer, once") {
  SessionTestClient client(64 * mib);
  static_cast<void>(client.control(wire::Control::ping));
  CHECK(client.pushes.empty());  // HELLO has said it
  REQUIRE(client.state.memory[0].resize(96 * mib));
  static_cast<void>(client.control(wire::Control::ping));
  const auto limit = told(client);
  CHECK(limit.device == 0);
  CHECK(limit.bytes == 96 * mib);
  CHECK(limit.number == 0);
  static_cast<void>(client.control(wire::Control::ping));
  CHECK(client.pushes.empty());
}

TEST_CASE("a client that says nothing is told too") {
  SessionTestClient client(64 * mib);
  REQUIRE(client.state.memory[0].resize(96 * mib));
  client.session().shares_decided();
  CHECK(told(client).bytes == 96 * mib);
}

TEST_CASE("a client is asked to make do with less, and what it gives back is gone before its answer counts") {
  SessionTestClient client(64 * mib);
  messages::MapMemory map;
  map.address = SessionTestClient::arena;
  map.size = 40 * mib;
  client.post(map);
  CHECK(client.deferred() == 0);
  auto asked =
      std::async(std::launch::async, [&] { client.session().make_do({{0, 32 * mib}}, patience_ms); });
  const auto wish = told(client);
  CHECK(wish.bytes == 32 * mib);
  REQUIRE(wish.number != 0);
  // While it has not decided, other answers do not take the wish back.
  CHECK(client.deferred() == 0);
  CHECK(client.pushes.empty());
  messages::UnmapMemory unmap;
  unmap.address = SessionTestClient::arena;
  unmap.size = 40 * mib;
  client.post(unmap);
  client.answer_limit(wish.number + 1);  // of nothing: it means nothing
  client.answer_limit(wish.number);
  asked.get();
  CHECK(client.state.memory[0].used() == 0);
  REQUIRE(client.state.memory[0].resize(32 * mib));
  client.session().shares_decided();
  const auto limit = told(client);
  CHECK(limit.bytes == 32 * mib);
  CHECK(limit.number == 0);
}

TEST_CASE("a client that does not answer is waited for as long as was said, and told what has become of it") {
  SessionTestClient client(64 * mib);
  client.session().make_do({{0, 32 * mib}}, 50);
  CHECK(told(client).number != 0);
  client.session().shares_decided();
  const auto limit = told(client);
  CHECK(limit.bytes == 64 * mib);
  CHECK(limit.number == 0);
}

TEST_CASE("a wish for a device that there is not, or said to nobody, is not waited for") {
  SessionTestClient client(64 * mib);
  auto asked =
      std::async(std::launch::async, [&] { client.session().make_do({{7, 32 * mib}}, 10 * patience_ms); });
  CHECK(asked.wait_for(std::chrono::milliseconds(patience_ms)) == std::future_status::ready);
  CHECK(client.pushes.empty());
  client.hang_up();
  client.session().make_do({{0, 32 * mib}}, 50);
  client.session().shares_decided();
}
