#include "worker/lease/handshake.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "wire/frame.h"
#include "wire/hello.h"

using namespace gpupool;
using worker::Handshake;
using State = worker::Handshake::State;

namespace {

struct Frame {
  wire::FrameHeader header{sizeof(wire::FrameHeader) + sizeof(wire::HelloBody), 1, wire::flag_ask, 0, 0, 1};
  wire::HelloBody body{wire::hello_magic, wire::protocol_version, {}, {}, 1234, 0, 0, 0, 0};
  Frame() {
    body.token.fill(0x11);
    body.session.fill(0x22);
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(sizeof(header) + sizeof(body));
    std::memcpy(all.data(), &header, sizeof(header));
    std::memcpy(all.data() + sizeof(header), &body, sizeof(body));
    all.resize(std::max<std::size_t>(all.size(), header.length <= 4096 ? header.length : 0));
    return all;
  }
};

Handshake fresh() {
  Handshake::Secret token;
  Handshake::Secret move_key;
  std::array<std::uint8_t, 16> session;
  token.fill(0x11);
  session.fill(0x22);
  move_key.fill(0x33);
  return Handshake(token, move_key, session);
}

/// Feeds as a socket would: as many bytes as wanted, in pieces of at most `piece`.
std::pair<State, std::size_t> run(Handshake& handshake, const std::vector<std::byte>& bytes,
                                  std::size_t piece = 4096) {
  std::size_t at = 0;
  while (handshake.state() == State::reading && at < bytes.size()) {
    const std::size_t size = std::min({handshake.wanted(), piece, bytes.size() - at});
    handshake.feed(std::span(bytes).subspan(at, size));
    at += size;
  }
  return {handshake.state(), at};
}

State outcome(const Frame& frame) {
  Handshake handshake = fresh();
  return run(handshake, frame.bytes()).first;
}

}  // namespace

TEST_CASE("the right token is let in, byte by byte or at once, and nothing behind the frame is taken") {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{4096}}) {
    Handshake handshake = fresh();
    std::vector<std::byte> bytes = Frame().bytes();
    const std::size_t frame = bytes.size();
    bytes.resize(frame + 100, std::byte{0xee});
    const auto [state, taken] = run(handshake, bytes, piece);
    CHECK(state == State::accepted);
    CHECK(taken == frame);
    CHECK(handshake.frame().size() == frame);
    CHECK(handshake.pid() == 1234);
    CHECK(handshake.wanted() == 0);
  }
}

TEST_CASE("a longer HELLO of a newer client is taken whole") {
  Frame frame;
  frame.header.length += 16;
  CHECK(outcome(frame) == State::accepted);
}

TEST_CASE("one wrong bit anywhere in token or session is refused") {
  for (std::size_t i = 0; i < 32; ++i) {
    Frame frame;
    frame.body.token[i] ^= 0x80;
    CHECK(outcome(frame) == State::refused);
  }
  Frame frame;
  frame.body.session[15] ^= 1;
  CHECK(outcome(frame) == State::refused);
}

TEST_CASE("wrong magic, version, message or flags are refused") {
  Frame magic, version, message, reply, bulk;
  magic.body.magic = 0;
  version.body.version = 999;
  message.header.message = 2;
  reply.header.flags = wire::flag_reply;
  bulk.header.flags = wire::flag_bulk;
  for (const Frame& frame : {magic, version, message, reply, bulk}) CHECK(outcome(frame) == State::refused);
}

TEST_CASE("evil lengths are refused by the header alone") {
  for (const std::uint32_t length : {0U, 1U, 23U, 24U, 95U, 4097U, 0x7fffffffU, 0xffffffffU}) {
    Frame frame;
    frame.header.length = length;
    Handshake handshake = fresh();
    const auto [state, taken] = run(handshake, frame.bytes());
    CHECK(state == State::refused);
    CHECK(taken == sizeof(wire::FrameHeader));
  }
}

TEST_CASE("a truncated frame stays undecided and wants the rest") {
  Handshake handshake = fresh();
  std::vector<std::byte> bytes = Frame().bytes();
  bytes.resize(50);
  CHECK(run(handshake, bytes).first == State::reading);
  CHECK(handshake.wanted() == Frame().bytes().size() - 50);
}

TEST_CASE("what a connection is for is known once its secret is, and other messages are refused") {
  for (const auto message :
       {wire::Control::hello, wire::Control::session, wire::Control::inquire, wire::Control::end_session}) {
    Frame frame;
    frame.header.message = static_cast<std::uint16_t>(message);
    if (message == wire::Control::session) frame.body.token.fill(0x33);
    Handshake handshake = fresh();
    CHECK(run(handshake, frame.bytes()).first == State::accepted);
    CHECK(handshake.purpose() == message);
    frame.body.token[31] ^= 1;
    CHECK(outcome(frame) == State::refused);
  }
  Frame frame;
  frame.header.message = static_cast<std::uint16_t>(wire::Control::end_session) + 1;
  CHECK(outcome(frame) == State::refused);
}

TEST_CASE("a client is no worker that comes for the session, and no such worker is a client") {
  Frame client;
  client.header.message = static_cast<std::uint16_t>(wire::Control::session);
  CHECK(outcome(client) == State::refused);
  Frame worker;
  worker.body.token.fill(0x33);
  CHECK(outcome(worker) == State::refused);
  worker.header.message = static_cast<std::uint16_t>(wire::Control::session);
  CHECK(outcome(worker) == State::accepted);
  Handshake settled({}, std::nullopt, client.body.session);
  CHECK(run(settled, worker.bytes()).first == State::refused);
}

TEST_CASE("secrets of different length are different") {
  const std::array<std::uint8_t, 4> four{1, 2, 3, 4};
  CHECK(worker::equal_secrets(four, four));
  CHECK_FALSE(worker::equal_secrets(four, std::span(four).first(3)));
}

TEST_CASE("only who goes on has a number of its connection: a process id may come again") {
  for (const std::uint64_t sent : {std::uint64_t{0}, std::uint64_t{7}}) {
    Frame frame;
    frame.body.connection = 5;
    frame.body.sent = sent;
    auto handshake = fresh();
    CHECK(run(handshake, frame.bytes()).first == State::accepted);
    CHECK(handshake.connection() == (sent == 0 ? 0 : 5));
  }
}
