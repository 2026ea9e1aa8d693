// Replies that come in another order than the asks, frames that answer nothing, and a worker that lies.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "client/link/connection.h"
#include "shared_api/error_log.h"
#include "wire/transport/socket_stream.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

constexpr std::uint16_t plain = wire::first_call;

/// A worker that says what a test wants said: `script` is called for each frame after HELLO.
class Peer {
 public:
  using Script = std::function<void(Peer&, const wire::FrameHeader&)>;

  /// What the client's end of the stream is wrapped in.
  using Wrap = std::function<std::unique_ptr<wire::Stream>(std::unique_ptr<wire::Stream>)>;

  explicit Peer(Script script, const Wrap& wrap = {}) : script_(std::move(script)) {
    std::string error;
    listener_ = wire::listen_tcp("127.0.0.1:0", port_, error);
    REQUIRE_MESSAGE(listener_, error);
    thread_ = std::thread([this] { serve(); });
    wire::HelloReply answer;
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    if (wrap) {
      auto socket = wire::connect_tcp(address, 10'000, error);
      REQUIRE_MESSAGE(socket, error);
      auto stream = wrap(std::make_unique<wire::SocketStream>(std::move(socket)));
      connection = Connection::over(std::move(stream), {}, answer, error);
    } else {
      connection = Connection::open(address, {}, answer, error);
    }
    REQUIRE_MESSAGE(connection != nullptr, error);
  }
  ~Peer() {
    connection.reset();
    thread_.join();
  }

  void reply(std::uint64_t sequence, std::span<const std::byte> fields = {},
             std::span<const std::byte> payload = {}) {
    wire::ReplyHeader result{};
    wire::Buffer body;
    body.append(&result, sizeof(result));
    body.append(fields.data(), fields.size());
    send(plain, wire::flag_reply, sequence, body.bytes(), payload);
  }
  void hang_up() { stream_->shut_down(); }
  void push(std::uint16_t message, std::span<const std::byte> payload = {}) {
    send(message, 0, 0, {}, payload);
  }
  void send(std::uint16_t message, std::uint16_t flags, std::uint64_t sequence,
            std::span<const std::byte> body, std::span<const std::byte> payload) {
    const std::uint64_t size = payload.size();
    wire::FrameHeader header{};
    header.message = message;
    header.flags = static_cast<std::uint16_t>(flags | (size > 0 ? wire::flag_bulk : 0));
    header.sequence = sequence;
    header.length = static_cast<std::uint32_t>(sizeof(header) + body.size() + (size > 0 ? sizeof(size) : 0));
    wire::Buffer out;
    out.append(&header, sizeof(header));
    out.append(body.data(), body.size());
    if (size > 0) out.append(&size, sizeof(size));
    out.append(payload.data(), payload.size());
    static_cast<void>(stream_->send(out.bytes()));
  }

  std::unique_ptr<Connection> connection;

 private:
  void serve() {
    stream_ = std::make_unique<wire::SocketStream>(wire::Socket(accept(listener_.fd(), nullptr, nullptr)));
    wire::Receiver receiver(*stream_);
    wire::FrameHeader header{};
    std::span<const std::byte> body;
    while (receiver.receive(header, body)) {
      if (header.message == static_cast<std::uint16_t>(wire::Control::hello)) {
        wire::Buffer fields;
        wire::Writer writer(fields);
        wire::HelloReply{}.encode(writer);
        reply(header.sequence, fields.bytes());
      } else {
        script_(*this, header);
      }
    }
    stream_->shut_down();
  }

  Script script_;
  wire::Socket listener_;
  std::uint16_t port_ = 0;
  std::unique_ptr<wire::SocketStream> stream_;
  std::thread thread_;
};

const auto nothing = [](wire::Writer&) {};

/// Keeps what arrives, and on which thread.
class Kept final : public PayloadSink {
 public:
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    bytes.resize(size);
    reader = std::this_thread::get_id();
    return receiver.take(bytes.data(), size);
  }
  std::vector<std::byte> bytes;
  std::thread::id reader;
};

/// A stream whose peer loses its power, or its cable, at some moment: nothing arrives any more.
class Unplugged final : public wire::Stream {
 public:
  Unplugged(std::unique_ptr<wire::Stream> inner, const std::atomic<bool>& pulled)
      : inner_(std::move(inner)), pulled_(pulled) {}
  using wire::Stream::send_parts;
  bool send_parts(iovec* parts, int count, bool more_follows) override {
    return pulled_ || inner_->send_parts(parts, count, more_follows);
  }
  std::size_t receive_some(void* into, std::size_t room) override {
    return pulled_ ? 0 : inner_->receive_some(into, room);
  }
  bool readable(int timeout_ms) override { return pulled_ ? timeout_ms != 0 : inner_->readable(timeout_ms); }
  bool holds_unread() override { return !pulled_ && inner_->holds_unread(); }
  bool hung_up() const override { return inner_->hung_up(); }
  bool vanished() const override { return pulled_; }
  void shut_down() noexcept override { inner_->shut_down(); }
  void abandon_after_fork() noexcept override { inner_->abandon_after_fork(); }
  std::string description() const override { return inner_->description(); }

 private:
  const std::unique_ptr<wire::Stream> inner_;
  const std::atomic<bool>& pulled_;
};

}  // namespace

TEST_CASE("replies reach their askers in whatever order they come") {
  constexpr std::size_t threads = 8;
  std::vector<std::uint64_t> asked;
  Peer peer([&](Peer& self, const wire::FrameHeader& header) {
    asked.push_back(header.sequence);
    if (asked.size() % threads != 0) return;
    for (; !asked.empty(); asked.pop_back()) {  // the last first; each with its own number as payload
      const std::uint64_t number = asked.back();
      self.reply(number, {}, std::as_bytes(std::span(&number, 1)));
    }
  });
  std::vector<std::thread> all;
  std::atomic<int> right{0};
  for (std::size_t n = 0; n < threads; ++n) {
    all.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Reply reply;
        Kept kept;
        if (!peer.connection->ask({plain, 1}, nothing, reply, &kept)) return;
        std::uint64_t number = 0;
        if (wire::read_front(kept.bytes, number) && number == reply.sequence) ++right;
      }
    });
  }
  for (auto& thread : all) thread.join();
  CHECK(right == threads * 200);
}

TEST_CASE("a thread that asks alone reads its reply itself") {
  Peer peer([](Peer& self, const wire::FrameHeader& header) {
    self.reply(header.sequence, {}, std::as_bytes(std::span("x")));
  });
  Reply reply;
  Kept kept;
  REQUIRE(peer.connection->ask({plain, 1}, nothing, reply, &kept));
  CHECK(kept.reader == std::this_thread::get_id());
}

TEST_CASE("an asker that has left is not missed: its reply is thrown away when it comes") {
  std::uint64_t kept_back = 0;
  Peer peer([&](Peer& self, const wire::FrameHeader& header) {
    if (kept_back == 0) {
      kept_back = header.sequence;
      return;
    }
    self.reply(header.sequence);
    if (kept_back != 1) self.reply(std::exchange(kept_back, 1), {}, std::as_bytes(std::span("late")));
  });
  Reply reply;
  CHECK(peer.connection->ask_within({plain, 1}, nothing, reply, 50) == Connection::Outcome::late);
  for (int n = 0; n < 3; ++n) CHECK(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK_FALSE(peer.connection->broken());
}

TEST_CASE("while a connection rests, calls under way are refused, but for those whose payload it lends") {
  Peer peer([](Peer& self, const wire::FrameHeader&) { self.hang_up(); });
  std::atomic<bool> over{false};
  const auto next = [&](auto, bool) {
    using Kind = ReconnectPolicy::Step::Kind;
    return ReconnectPolicy::Step{over ? Kind::give_up : Kind::rest, {}, {}, {}};
  };
  peer.connection->survive({{}, next, {}, {}, {}});
  std::vector<std::byte> bytes(1 << 20);
  const iovec part{bytes.data(), bytes.size()};
  auto lending = std::async(std::launch::async, [&] {
    Reply reply;
    return peer.connection->ask({plain, 1, 0, &part, 1, bytes.size()}, nothing, reply);
  });
  Reply reply;
  REQUIRE(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK(reply.header.status == wire::Status::not_attached);
  CHECK_FALSE(peer.connection->broken());
  CHECK(lending.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  over = true;
  peer.connection->look_again(false);
  CHECK_FALSE(lending.get());
}

TEST_CASE("a frame that answers nothing is taken in while somebody waits, and without waiting too") {
  constexpr auto message = wire::Control::output;
  Peer peer([&](Peer& self, const wire::FrameHeader& header) {
    self.push(static_cast<std::uint16_t>(message), std::as_bytes(std::span("text")));
    if ((header.flags & wire::flag_ask) != 0) self.reply(header.sequence);
  });
  std::atomic<int> pushed{0};
  peer.connection->on_push(message, [&](auto, wire::Receiver& receiver, std::uint64_t size) {
    ++pushed;
    return receiver.skip(size);
  });
  Reply reply;
  CHECK(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK(pushed == 1);
  CHECK(peer.connection->post({plain, 1}, nothing) == 3);
  CHECK(peer.connection->read_until([&] { return pushed == 2; }));
  CHECK(peer.connection->post({plain, 1}, nothing) == 4);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (pushed < 3 && std::chrono::steady_clock::now() < limit) peer.connection->read_arrived();
  CHECK(pushed == 3);
}

TEST_CASE("a peer that vanishes is missed by a program that never waits") {
  std::atomic<bool> pulled{false};
  Peer peer([](Peer& self, const wire::FrameHeader& header) { self.reply(header.sequence); },
            [&](auto stream) { return std::make_unique<Unplugged>(std::move(stream), pulled); });
  Reply reply;
  REQUIRE(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK_FALSE(peer.connection->broken());
  pulled = true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!peer.connection->broken() && std::chrono::steady_clock::now() < limit) {
    peer.connection->read_arrived();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(peer.connection->broken());
}

TEST_CASE("a callback that hears of an error may ask, on whatever way the error was read") {
  constexpr auto message = wire::Control::output;
  Peer peer([&](Peer& self, const wire::FrameHeader& header) {
    self.push(static_cast<std::uint16_t>(message), std::as_bytes(std::span("text")));
    if ((header.flags & wire::flag_ask) != 0) self.reply(header.sequence);
  });
  std::atomic<bool> tells{false};
  peer.connection->on_push(message, [&](auto, wire::Receiver& receiver, std::uint64_t size) {
    if (tells.exchange(false)) error_log().add("of the worker");
    return receiver.skip(size);
  });
  struct Heard {
    Connection& connection;
    std::vector<Connection::Outcome> outcomes;
  } heard{*peer.connection, {}};
  const auto asks = [](void* data, CUlogLevel, char*, std::size_t) {
    auto& [connection, outcomes] = *static_cast<Heard*>(data);
    Reply reply;
    outcomes.push_back(connection.ask_within({plain, 1}, nothing, reply, 10'000));
  };
  const auto number = error_log().add_callback(asks, &heard);
  const auto told = [&] { return !tells; };
  Reply reply;
  tells = true;
  CHECK(peer.connection->ask({plain, 1}, nothing, reply));
  tells = true;
  CHECK(peer.connection->post({plain, 1}, nothing) != 0);
  CHECK(peer.connection->read_until(told));
  tells = true;
  CHECK(peer.connection->post({plain, 1}, nothing) != 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (tells && std::chrono::steady_clock::now() < limit) peer.connection->read_arrived();
  CHECK(heard.outcomes == std::vector(3, Connection::Outcome::answered));
  static_cast<void>(error_log().remove_callback(number));
}

TEST_CASE("a worker that answers what was not asked loses its client") {
  const std::vector<std::function<void(Peer&, const wire::FrameHeader&)>> lies = {
      [](Peer& self, const wire::FrameHeader& header) { self.reply(header.sequence + 1); },
      [](Peer& self, const wire::FrameHeader& header) { self.reply(header.sequence - 1); },
      [](Peer& self, const wire::FrameHeader&) { self.push(wire::first_call); },
      [](Peer& self, const wire::FrameHeader&) { self.push(63); },
      [](Peer& self, const wire::FrameHeader&) { self.push(0xffff); },
      [](Peer& self, const wire::FrameHeader& header) {  // shorter than a reply can be
        self.send(plain, wire::flag_reply, header.sequence, {}, {});
      },
      [](Peer& self, const wire::FrameHeader& header) {  // longer than any frame
        wire::FrameHeader huge{0xffffffff, plain, wire::flag_reply, 0, 0, header.sequence};
        self.send(plain, 0xff00, header.sequence, std::as_bytes(std::span(&huge, 1)), {});
      },
  };
  for (std::size_t number = 0; number < lies.size(); ++number) {
    Peer peer(lies[number]);
    std::vector<std::future<bool>> askers;
    for (int n = 0; n < 3; ++n) {
      askers.push_back(std::async(std::launch::async, [&] {
        Reply reply;
        return peer.connection->ask({plain, 1}, nothing, reply);
      }));
    }
    // The second lie names another asker's number, which no reader can tell from the truth.
    for (auto& asker : askers) REQUIRE(asker.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
    INFO("lie ", number);
    if (number != 1) CHECK(peer.connection->broken());
  }
}

TEST_CASE("a worker that answers twice loses its client") {
  Peer peer([](Peer& self, const wire::FrameHeader& header) {
    self.reply(header.sequence);
    self.reply(header.sequence);
  });
  Reply reply;
  CHECK(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK_FALSE(peer.connection->ask({plain, 1}, nothing, reply));
  CHECK(peer.connection->broken());
}

TEST_CASE("posts do not pile up behind a worker that does not read") {
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future().share();
  Peer peer([&](Peer& self, const wire::FrameHeader& header) {
    may_go_on.wait();
    if ((header.flags & wire::flag_ask) != 0) self.reply(header.sequence);
  });
  constexpr std::size_t size = 1 << 10;
  std::atomic<std::size_t> posted{0};
  std::thread poster([&] {
    for (int n = 0; n < 100'000; ++n) {
      if (peer.connection->post({plain, 1},
                                [](wire::Writer& writer) { writer.put(std::array<std::byte, size>{}); }) == 0)
        return;
      ++posted;
    }
  });
  std::size_t before = 1, now = 0;
  while (now != before) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    now = posted;
  }
  CHECK(now * size < (40u << 20));  // the sockets' buffers, and no more than this process may keep
  go_on.set_value();
  poster.join();
  CHECK(posted == 100'000);
  Reply reply;
  CHECK(peer.connection->ask({plain, 1}, nothing, reply));
}
