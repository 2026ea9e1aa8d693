// What of a session is written down, and when that is given up.
#include "worker/moving/session_writer.h"

#include <unistd.h>

#include <span>
#include <stdexcept>
#include <string>

#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

TEST_CASE("a session is read no further than to the piece at which nobody waits for it any more") {
  SessionTestClient client;
  messages::MapMemory map;
  map.address = SessionTestClient::arena;
  map.size = 3 * worker::SessionImage::chunk_bytes;
  client.post(map);
  client.ask(messages::cuStreamSynchronize{});
  auto& conversation = client.session().conversation();
  const auto held = conversation.stand_still();
  REQUIRE(held.owns_lock());
  worker::SessionWriter writer(conversation);
  int asked = 0;
  CHECK_THROWS_AS(writer.read_all([](std::span<const std::byte>) {}, [&] { return ++asked == 2; }),
                  std::runtime_error);
  CHECK(asked == 2);
}

TEST_CASE("what kernels have printed and the client was not told goes along with the session") {
  SessionTestClient client;
  client.ask(messages::cuStreamSynchronize{});
  auto& conversation = client.session().conversation();
  const auto held = conversation.stand_still();
  REQUIRE(held.owns_lock());
  const std::string text = "spoken\n";
  REQUIRE(::write(STDOUT_FILENO, text.data(), text.size()) == 7);
  for (int again = 0; again < 2; ++again) {  // it stays here as well
    const auto state = conversation.link_state();
    REQUIRE(state);
    REQUIRE(!state->pushes.empty());
    const auto& last = state->pushes.back();
    CHECK(last.number == state->pushed);
    REQUIRE(last.bytes.size() > text.size());
    const auto end = std::span(last.bytes).last(text.size());
    CHECK(std::string(reinterpret_cast<const char*>(end.data()), end.size()) == text);
  }
}
