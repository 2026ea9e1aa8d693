// A client and a session, and between them connections that break: at every byte, and again and again.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "client/link/connection.h"
#include "generated/messages.h"
#include "generated/wire/control.h"
#include "wire/handle.h"
#include "wire/transport/socket_stream.h"
#include "worker/process/session_host.h"

using namespace gpupool;

namespace {

constexpr std::uint32_t epoch = 1;
constexpr std::uint64_t arena = std::uint64_t{6} << 44;
constexpr std::uint64_t for_ever = UINT64_MAX / 2;
const std::uint64_t context = wire::Handle{wire::Kind::context, 0, 0}.value();
const std::uint64_t stream = wire::Handle{wire::Kind::stream, 0, 1}.value();

/// Breaks when so many bytes have passed it, in both directions together.
class CutStream final : public wire::Stream {
 public:
  CutStream(std::unique_ptr<wire::Stream> inner, std::uint64_t bytes)
      : inner_(std::move(inner)), left_(bytes) {}

  using Stream::send_parts;
  bool send_parts(iovec* parts, int count, bool more) override {
    for (; count > 0; ++parts, --count) {
      const std::uint64_t now = take(parts->iov_len);
      const bool whole = now == parts->iov_len;
      iovec part{parts->iov_base, static_cast<std::size_t>(now)};
      if (now > 0 && !inner_->send_parts(&part, 1, more)) return false;
      if (whole) continue;
      inner_->shut_down();
      return false;
    }
    return true;
  }
  std::size_t receive_some(void* into, std::size_t room) override {
    if (!inner_->readable(wire::Stream::for_ever)) return 0;
    const std::size_t some = std::min<std::size_t>(room, left_.load() > 0 ? 64 : 0);
    const std::size_t got = some == 0 ? 0 : inner_->receive_some(into, some);
    const auto allowed = static_cast<std::size_t>(take(got));
    if (allowed < got || some == 0) inner_->shut_down();
    return allowed;
  }
  bool readable(int timeout_ms) override { return inner_->readable(timeout_ms); }
  bool holds_unread() override { return inner_->holds_unread(); }
  bool hung_up() const override { return inner_->hung_up(); }
  void shut_down() noexcept override { inner_->shut_down(); }
  void abandon_after_fork() noexcept override {}
  std::string description() const override { return "cut"; }

 private:
  std::uint64_t take(std::uint64_t wanted) {
    std::uint64_t left = left_.load();
    while (!left_.compare_exchange_weak(left, left - std::min(left, wanted))) {
    }
    return std::min(left, wanted);
  }
  std::unique_ptr<wire::Stream> inner_;
  std::atomic<std::uint64_t> left_;
};

/// A session that serves one connection after the other.
class Worker {
 public:
  Worker() {
    state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
    state.memory.emplace_back(64u << 20);
    REQUIRE(state.gate.grant(epoch, worker::boottime_ns() + 3'600'000'000'000, worker::boottime_ns()) ==
            worker::LeaseAnswer::ok);
    session = worker::SessionHost::open(GPUPOOL_TEST_DRIVER, state);
  }
  ~Worker() { end(); }

  std::unique_ptr<wire::Stream> connect(std::uint64_t bytes) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    end();
    served_ = wire::Socket(dup(fds[1]));
    thread_ = std::thread([this, socket = std::make_shared<wire::Socket>(fds[1])] {
      std::vector<std::byte> hello(sizeof(wire::FrameHeader) + sizeof(wire::HelloBody));
      if (!wire::receive_exactly(socket->fd(), hello.data(), hello.size())) return;
      wire::SocketStream served(std::move(*socket));
      session->serve(served, hello);
    });
    return std::make_unique<CutStream>(std::make_unique<wire::SocketStream>(wire::Socket(fds[0])), bytes);
  }
  /// Ends the connection from here.
  void cut() { shutdown(served_.fd(), SHUT_RDWR); }
  /// Until the last client has gone.
  void end() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] worker::Conversation& conversation() { return session->conversation(); }

  worker::WorkerState state;
  std::unique_ptr<worker::SessionHost> session;

 private:
  wire::Socket served_;
  std::thread thread_;
};

class Kept final : public client::PayloadSink {
 public:
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    bytes.resize(static_cast<std::size_t>(size));
    return receiver.take(bytes.data(), bytes.size());
  }
  std::vector<std::byte> bytes;
};

/// A client whose connections last for as many bytes as `lifetimes` says, one after the other.
class Client {
 public:
  using Lifetimes = std::function<std::uint64_t(int connection)>;

  Client(Worker& worker, std::uint64_t pid, Lifetimes lifetimes)
      : worker_(&worker), lifetimes_(std::move(lifetimes)) {
    wire::HelloBody hello{};
    hello.magic = wire::hello_magic;
    hello.version = wire::protocol_version;
    hello.pid = pid;
    hello.arena_base = arena;
    hello.connection = 1;
    wire::HelloReply answer;
    std::string error;
    connection = client::Connection::over(worker.connect(lifetimes_(0)), hello, answer, error);
    if (connection == nullptr) return;  // it broke before it was one
    connection->on_push(wire::Control::copied,
                        [this](auto body, wire::Receiver& receiver, std::uint64_t size) {
                          wire::Reader in(body);
                          wire::Copied told;
                          std::vector<std::byte> bytes(static_cast<std::size_t>(size));
                          if (!wire::Copied::decode(in, told) || !receiver.take(bytes.data(), bytes.size()))
                            return false;
                          const std::lock_guard lock(telling);
                          ++copied[told.ticket];
                          copied_bytes += size;
                          return told.result == CUDA_SUCCESS;
                        });
    connection->on_push(wire::Control::charged, [](auto body, wire::Receiver&, std::uint64_t size) {
      return body.size() == 12 && size == 0;
    });
    connection->on_push(wire::Control::memory_refused, [](auto body, wire::Receiver&, std::uint64_t size) {
      return body.size() == 12 && size == 0;
    });
    connection->on_push(wire::Control::share_limit, [this](auto body, wire::Receiver&, std::uint64_t size) {
      wire::Reader in(body);
      wire::ShareLimit told;
      if (!wire::ShareLimit::decode(in, told) || size != 0) return false;
      limit = told.bytes;
      return true;
    });
    connection->on_push(wire::Control::completed, [this](auto body, wire::Receiver&, std::uint64_t) {
      wire::Reader in(body);
      wire::Completed told;
      if (!wire::Completed::decode(in, told)) return false;
      const std::lock_guard lock(telling);
      ++completed;
      return told.result == CUDA_SUCCESS;
    });
    client::Connection::Survival how;
    how.hello = hello;
    how.dial = [this](const std::string&, std::string&) {
      return worker_->connect(lifetimes_(++connections));
    };
    how.accept = [](const wire::HelloReply&, std::string&) { return true; };
    how.next = [this](client::ReconnectPolicy::Result last, bool) -> client::ReconnectPolicy::Step {
      using Kind = client::ReconnectPolicy::Step::Kind;
      using Result = client::ReconnectPolicy::Result;
      if (last == Result::unknown) return {Kind::give_up, {}, {}, "unknown"};
      if (last == Result::broke) {
        ++breaks;
        return {Kind::wait, {}, {}, {}};
      }
      return {Kind::dial, {}, std::chrono::seconds(10), {}};
    };
    connection->survive(std::move(how));
  }

  template <class M>
  void post(const M& message, std::span<const std::byte> payload = {}) {
    const iovec part{const_cast<std::byte*>(payload.data()), payload.size()};
    const client::Outgoing out{static_cast<std::uint16_t>(M::id), epoch,         context, &part,
                               payload.empty() ? 0 : 1,           payload.size()};
    REQUIRE(connection->post(out, [&](wire::Writer& writer) {
      if constexpr (M::bulk_request) {
        message.encode_head(writer);
      } else {
        message.encode(writer);
      }
    }) != 0);
    ++posts;
  }
  template <class M>
  std::int32_t ask(const M& message, client::PayloadSink* sink = nullptr) {
    client::Reply reply;
    const client::Outgoing out{static_cast<std::uint16_t>(M::id), epoch, context};
    REQUIRE(connection->ask(out, [&](wire::Writer& writer) { message.encode(writer); }, reply, sink));
    if (connection->take_deferred()) ++deferred;
    return reply.header.result;
  }

  /// Whether a completion was told, and so many copies have come.
  [[nodiscard]] bool told_of(std::size_t copies) {
    const std::lock_guard lock(telling);
    return completed > 0 && copied.size() == copies;
  }

  std::map<std::uint64_t, int> copied;
  std::uint64_t copied_bytes = 0;
  std::atomic<std::uint64_t> limit{0};  // of the share, as told since
  int completed = 0, deferred = 0, connections = 0;
  int breaks = 0;  // told of: each once
  // The thread that mends the connection takes pushes in, too, while another one waits for them.
  std::mutex telling;
  std::uint64_t posts = 1;  // the choice of the context
  std::unique_ptr<client::Connection> connection;

 private:
  Worker* worker_;
  Lifetimes lifetimes_;

 public:
  void go_to(Worker& other) { worker_ = &other; }
};

/// Some of everything; whatever breaks, each of it happens once.
void talk(Worker& worker, Client& client, std::size_t small, std::size_t large) {
  const std::uint64_t before = worker.state.usage.snapshot().posts;
  messages::cuStreamCreate create;
  create.phStream = stream;
  client.post(create);
  messages::MapMemory map;
  map.address = arena;
  map.size = 8u << 20;
  client.post(map);
  messages::CopyFromHost up;
  up.address = arena;
  up.stream = stream;
  client.post(up, std::vector<std::byte>(small, std::byte{1}));
  messages::SynchronizeContext synchronize;
  synchronize.context = context;
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  messages::cuEventRecord wrong;  // of no event: told once
  wrong.hEvent = wire::Handle{wire::Kind::event, 0, 9}.value();
  client.post(wrong);
  if (large > 0) client.post(up, std::vector<std::byte>(large, std::byte{2}));
  for (const std::uint64_t ticket : {1, 2}) {
    messages::CopyToHostAsync down;
    down.address = arena;
    down.size = ticket == 1 ? small : std::max(large, small);
    down.stream = stream;
    down.ticket = ticket;
    client.post(down);
  }
  messages::CopyToHost read;
  read.address = arena;
  read.size = small;
  read.stream = stream;
  Kept kept;
  CHECK(client.ask(read, &kept) == CUDA_SUCCESS);
  CHECK(kept.bytes.size() == small);
  messages::WatchStream watch;
  watch.watch = watch.stream = stream;
  client.post(watch);
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  REQUIRE(client.connection->read_until([&] { return client.told_of(2); }));
  messages::cuStreamDestroy_v2 destroy;
  destroy.hStream = stream;
  client.post(destroy);
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  CHECK(client.copied == std::map<std::uint64_t, int>{{1, 1}, {2, 1}});
  CHECK(client.copied_bytes == small + std::max(large, small));
  CHECK(client.completed == 1);
  CHECK(client.deferred == 1);
  CHECK(worker.state.usage.snapshot().posts - before == client.posts);
}

}  // namespace

TEST_CASE("whatever byte a connection breaks at, each call is executed once and each answer received once") {
  Worker worker;
  std::uint64_t pid = 0;
  int broken = 0;
  for (std::uint64_t bytes = 1;; ++bytes) {
    CAPTURE(bytes);
    Client client(worker, ++pid, [&](int n) { return n == 0 ? bytes : for_ever; });
    if (client.connection == nullptr) continue;
    talk(worker, client, 40, 0);
    if (client.connections == 0) break;
    ++broken;
  }
  CHECK(broken > 900);
}

TEST_CASE("connections that break again and again lose nothing and repeat nothing") {
  Worker worker;
  std::mt19937 random(3);
  for (std::uint64_t pid = 1; pid <= 60; ++pid) {
    CAPTURE(pid);
    const auto lifetime = [&](int n) -> std::uint64_t {
      // HELLO and its answer fit into each; after many the rest comes through.
      return n == 0 || n > 40 ? (n == 0 ? 4000 + random() % 2000 : for_ever) : 500 + random() % 400'000;
    };
    Client client(worker, pid, lifetime);
    REQUIRE(client.connection != nullptr);
    talk(worker, client, 1000, 300'000);
  }
}

TEST_CASE("a session that moved to another worker goes on where it was") {
  Worker second, first;  // each has taken standard output in the place of the one before
  {
    Client before(second, 1,
                  [](int) { return for_ever; });  // stands for the session's objects, made again there
    messages::cuStreamCreate create;
    create.phStream = stream;
    before.post(create);
    messages::MapMemory map;
    map.address = arena;
    map.size = 8u << 20;
    before.post(map);
    messages::SynchronizeContext synchronize;
    synchronize.context = context;
    CHECK(before.ask(synchronize) == CUDA_SUCCESS);
  }
  second.end();
  const std::uint64_t prepared = second.state.usage.snapshot().posts;

  const auto lifetime = [&](int n) {
    if (n == 1) {
      first.end();
      const auto state = first.conversation().link_state();
      REQUIRE(state);
      wire::Buffer packed;
      wire::Writer out(packed);
      state->encode(out);
      wire::Reader in(packed.bytes());
      worker::LinkState read;
      REQUIRE(worker::LinkState::decode(in, read));
      REQUIRE(second.conversation().go_on_from(read));
    }
    return for_ever;
  };
  Client client(first, 1, lifetime);
  messages::cuStreamCreate create;
  create.phStream = stream;
  client.post(create);
  messages::MapMemory map;
  map.address = arena;
  map.size = 8u << 20;
  client.post(map);
  messages::CopyFromHost up;
  up.address = arena;
  up.stream = stream;
  messages::SynchronizeContext synchronize;
  synchronize.context = context;
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  messages::CopyToHostAsync down;
  down.address = arena;
  down.size = 5000;
  down.stream = stream;
  down.ticket = 1;
  client.post(down);
  client.post(up, std::vector<std::byte>(100, std::byte{1}));
  client.go_to(second);
  client.connection->look_again(true);
  for (int n = 0; n < 50; ++n) client.post(up, std::vector<std::byte>(100, std::byte{1}));
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  REQUIRE(client.connection->read_until([&] { return !client.copied.empty(); }));
  CHECK(client.connections == 1);
  CHECK(client.breaks == 1);
  CHECK(client.copied == std::map<std::uint64_t, int>{{1, 1}});
  CHECK(client.deferred == 0);
  CHECK(first.state.usage.snapshot().posts + second.state.usage.snapshot().posts - prepared == client.posts);
  CHECK(second.state.usage.snapshot().posts > prepared);
}

TEST_CASE("a worker that knows nothing of the session says so, and the client gives up") {
  Worker first, second;
  Client client(first, 1, [](int) { return for_ever; });
  messages::SynchronizeContext synchronize;
  synchronize.context = context;
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  client.go_to(second);
  client.connection->look_again(true);
  client::Reply reply;
  CHECK_FALSE(client.connection->ask(
      {static_cast<std::uint16_t>(messages::SynchronizeContext::id), epoch, context},
      [&](wire::Writer& out) { synchronize.encode(out); }, reply));
  CHECK(client.connection->broken());
}

TEST_CASE("a program with the process id of an earlier one finds nothing of it") {
  Worker worker;
  for (int programs = 0; programs < 2; ++programs) {
    CAPTURE(programs);
    Client client(worker, 1, [](int) { return for_ever; });
    REQUIRE(client.connection != nullptr);
    messages::cuStreamCreate create;
    create.phStream = stream;
    client.post(create);
    messages::MapMemory map;
    map.address = arena;
    map.size = 8u << 20;
    client.post(map);
    messages::SynchronizeContext synchronize;
    synchronize.context = context;
    CHECK(client.ask(synchronize) == CUDA_SUCCESS);
    CHECK(client.deferred == 0);
    CHECK(worker.state.memory[0].used() == map.size);
    worker.cut();  // without a goodbye, as when it is killed
    client.connection.reset();
  }
}

TEST_CASE("what the worker tells a program that says nothing is taken in, also on the next connection") {
  Worker worker;
  Client client(worker, 1, [](int) { return for_ever; });
  messages::SynchronizeContext synchronize;
  synchronize.context = context;
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  const auto heard = [&](std::uint64_t bytes) {
    for (int n = 0; n < 6000 && client.limit.load() != bytes; ++n)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return client.limit.load() == bytes;
  };
  std::uint64_t size = worker.state.memory[0].limit();
  for (int connections = 0; connections < 2; ++connections) {
    for (int n = 0; n < 2; ++n) {
      size += 2u << 20;
      REQUIRE(worker.state.memory[0].resize(size));
      worker.session->shares_decided();
      CHECK(heard(size));
    }
    client.connection->look_again(true);
    CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  }
  CHECK(client.connections == 2);
}

TEST_CASE("a connection that ends while nobody needs it is left alone until somebody does") {
  Worker worker;
  Client client(worker, 1, [](int) { return for_ever; });
  messages::SynchronizeContext synchronize;
  synchronize.context = context;
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  worker.cut();
  std::this_thread::sleep_for(
      std::chrono::milliseconds(1300));  // longer than the client waits before it listens
  CHECK(client.connections == 0);
  CHECK(client.ask(synchronize) == CUDA_SUCCESS);
  CHECK(client.connections == 1);
}
