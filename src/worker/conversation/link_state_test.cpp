#include "worker/conversation/link_state.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

using namespace gpupool;
using worker::LinkState;

namespace {

std::vector<std::byte> bytes(std::string_view text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

LinkState some() {
  LinkState state;
  state.client = 4711;
  state.connection = 3;
  state.received = 900;
  state.pushed = 12;
  state.context = 77;
  state.deferred_error = 2;
  state.deferred_message = 99;
  state.replies = {{1, 899, false, 0, 0, 0, bytes("a reply")}, {2, 900, true, 77, 3, 5, bytes("a read")}};
  state.pushes = {{11, bytes("eleven")}, {12, {}}};
  state.kept = {{898, 300, 1, bytes("a launch"), {}}, {900, 301, 0, bytes("a copy"), bytes("its payload")}};
  return state;
}

bool decode(std::span<const std::byte> packed, LinkState& out) {
  wire::Reader in(packed);
  return LinkState::decode(in, out);
}

}  // namespace

TEST_CASE("the state of a conversation comes back as it was written") {
  for (const LinkState& state : {LinkState{}, some()}) {
    wire::Buffer packed;
    wire::Writer out(packed);
    state.encode(out);
    LinkState read;
    REQUIRE(decode(packed.bytes(), read));
    CHECK(read == state);
  }
}

TEST_CASE("a state that is cut, or whose numbers contradict each other, is refused") {
  wire::Buffer packed;
  wire::Writer out(packed);
  some().encode(out);
  for (std::size_t size = 0; size < packed.size(); ++size) {
    LinkState read;
    CHECK_FALSE(decode(packed.bytes().first(size), read));
  }
  const auto refused = [](const auto& change) {
    LinkState wrong = some();
    change(wrong);
    wire::Buffer bad;
    wire::Writer writer(bad);
    wrong.encode(writer);
    LinkState read;
    return !decode(bad.bytes(), read);
  };
  CHECK(refused([](LinkState& state) { state.replies[0].sequence = 901; }));
  CHECK(refused([](LinkState& state) { state.pushes[0].number = 10; }));
  CHECK(refused([](LinkState& state) { state.pushed = 1; }));
  CHECK(refused([](LinkState& state) { state.kept[1].sequence = 901; }));
  CHECK(refused([](LinkState& state) { state.kept[1].sequence = 898; }));
}

TEST_CASE("damaged bytes never make a reader fail") {
  std::mt19937 random(1);
  wire::Buffer packed;
  wire::Writer out(packed);
  some().encode(out);
  for (int n = 0; n < 2000; ++n) {
    std::vector<std::byte> damaged(packed.bytes().begin(), packed.bytes().end());
    damaged[random() % damaged.size()] ^= static_cast<std::byte>(1u << random() % 8);
    LinkState read;
    static_cast<void>(decode(damaged, read));
  }
}
