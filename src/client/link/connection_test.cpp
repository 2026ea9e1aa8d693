#include "client/link/connection.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <vector>

#include "wire/transport/socket_stream.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

constexpr std::uint16_t plain = wire::first_call;
constexpr std::uint16_t with_payload = wire::first_call + 1;

/// A worker that answers every ask, those for `with_payload` with a kilobyte, and remembers what came.
class Peer {
 public:
  Peer() {
    std::string error;
    listener_ = wire::listen_tcp("127.0.0.1:0", port_, error);
    REQUIRE_MESSAGE(listener_, error);
    thread_ = std::thread([this] { serve(); });
  }
  ~Peer() { finish(); }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Waits until the client has gone; then `frames` may be read.
  void finish() {
    if (!thread_.joinable()) return;
    shutdown(client_, SHUT_RD);
    thread_.join();
  }

  struct Frame {
    wire::FrameHeader header;
    std::vector<std::byte> body;
  };
  std::vector<Frame> frames;

 private:
  void serve() {
    wire::Socket client(accept(listener_.fd(), nullptr, nullptr));
    client_ = client.fd();
    wire::SocketStream stream(std::move(client));
    wire::Receiver receiver(stream);
    wire::FrameHeader header{};
    std::span<const std::byte> body;
    while (receiver.receive(header, body)) {
      frames.push_back({header, {body.begin(), body.end()}});
      if ((header.flags & wire::flag_ask) == 0) continue;
      const std::vector<std::byte> payload(header.message == with_payload ? 1024 : 0);
      wire::Buffer fields;
      wire::Writer writer(fields);
      if (header.message == static_cast<std::uint16_t>(wire::Control::hello))
        wire::HelloReply{}.encode(writer);
      if (!payload.empty()) writer.put(std::uint64_t{payload.size()});
      const wire::ReplyHeader result{0, 0, 0, wire::Status::ok};
      header.flags = static_cast<std::uint16_t>(wire::flag_reply | (payload.empty() ? 0 : wire::flag_bulk));
      header.length = static_cast<std::uint32_t>(sizeof(header) + sizeof(result) + fields.size());
      wire::Buffer out;
      out.append(&header, sizeof(header));
      out.append(&result, sizeof(result));
      out.append(fields.data(), fields.size());
      out.append(payload.data(), payload.size());
      if (!stream.send(out.bytes())) return;
    }
  }

  wire::Socket listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> client_{-1};
  std::thread thread_;
};

std::unique_ptr<Connection> connect(const Peer& peer) {
  wire::HelloReply answer;
  std::string error;
  auto made = Connection::open(peer.address(), {}, answer, error);
  REQUIRE_MESSAGE(made != nullptr, error);
  return made;
}

class NoRoom final : public PayloadSink {
 public:
  bool take(wire::Receiver&, std::uint64_t) override { throw std::bad_alloc(); }
};

const auto nothing = [](wire::Writer&) {};

}  // namespace

TEST_CASE("memory that runs out while a reply is taken ends the connection and not the turns of others") {
  Peer peer;
  const std::shared_ptr<Connection> connection = connect(peer);
  NoRoom sink;
  Reply reply;
  CHECK_NOTHROW(CHECK_FALSE(connection->ask({with_payload, 1}, nothing, reply, &sink)));
  auto answered = std::make_shared<std::promise<bool>>();
  auto next = answered->get_future();
  std::thread([connection, answered] {
    Reply own;
    answered->set_value(connection->ask({plain, 1}, nothing, own));
  }).detach();
  REQUIRE(next.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  CHECK_FALSE(next.get());
}

TEST_CASE("memory that runs out while a frame is written leaves nothing of it behind") {
  Peer peer;
  const auto connection = connect(peer);
  const auto fails = [](wire::Writer& writer) {
    writer.put(std::uint64_t{7});
    throw std::bad_alloc();
  };
  const auto value = [](wire::Writer& writer) { writer.put(std::uint32_t{5}); };
  constexpr std::uint64_t context = 9;
  CHECK(connection->post({plain, 1}, value));
  CHECK_THROWS_AS(connection->post({plain, 1, context}, fails), std::bad_alloc);
  Reply reply;
  CHECK_THROWS_AS(connection->ask({plain, 1, context}, fails, reply), std::bad_alloc);
  CHECK(connection->ask_within({plain, 1, context}, value, reply, 5000) == Connection::Outcome::answered);
  peer.finish();
  // HELLO, the post, the choice of the context, the ask
  REQUIRE(peer.frames.size() == 4);
  for (std::size_t n = 0; n < 4; ++n) CHECK(peer.frames[n].header.sequence == n + 1);
  CHECK(peer.frames[2].header.message == static_cast<std::uint16_t>(MessageId::SelectContext));
  CHECK(peer.frames[3].body.size() == sizeof(std::uint32_t));
}

TEST_CASE("a payload of more parts than one system call takes arrives whole") {
  Peer peer;
  const auto connection = connect(peer);
  // The peer knows no payloads: this one is itself a row of frames, as it would read them.
  constexpr int count = 1500;
  std::vector<wire::FrameHeader> headers;
  std::vector<iovec> parts;
  for (std::uint64_t n = 0; n < count; ++n) headers.push_back({sizeof(wire::FrameHeader), plain, 0, 1, 0, n});
  for (auto& header : headers) parts.push_back({&header, sizeof(header)});
  Outgoing out{plain, 1};
  out.payload = parts.data();
  out.payload_parts = count;
  out.payload_bytes = count * sizeof(wire::FrameHeader);
  CHECK(connection->post(out, nothing));
  Reply reply;
  CHECK(connection->ask_within({plain, 1}, nothing, reply, 5000) == Connection::Outcome::answered);
  peer.finish();
  REQUIRE(peer.frames.size() == count + 3);
  for (std::uint64_t n = 0; n < count; ++n) CHECK(peer.frames[n + 2].header.sequence == n);
}
