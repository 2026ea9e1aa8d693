// What a session tells unasked: completions, and the bytes of copies that nobody waits for.
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "generated/wire/control.h"
#include "wire/windows.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

namespace {

struct Held {
  Held() { hold(true); }
  ~Held() { let_go(); }
  static void let_go() { hold(false); }
  static void hold(bool on) { worker::of_test_driver<void(bool)>("test_driver_hold")(on); }
};

/// A stream, an event recorded in it, and mapped memory.
struct Session {
  explicit Session() {
    messages::cuStreamCreate create;
    create.phStream = stream;
    client.post(create);
    messages::cuEventCreate create_event;
    create_event.phEvent = event;
    client.post(create_event);
    messages::MapMemory map;
    map.address = SessionTestClient::arena;
    map.size = 8 * SessionTestClient::granularity;
    client.post(map);
    record();
    REQUIRE(client.deferred() == CUDA_SUCCESS);
  }
  void record() {
    messages::cuEventRecord record;
    record.hEvent = event;
    record.hStream = stream;
    client.post(record);
  }
  std::uint64_t watch_event() {
    messages::WatchEvent watch;
    watch.watch = event;
    client.post(watch);
    return client.sequence();
  }
  void copy(std::uint64_t ticket, std::uint64_t size, std::uint64_t address = SessionTestClient::arena) {
    messages::CopyToHostAsync copy;
    copy.address = address;
    copy.size = size;
    copy.stream = stream;
    copy.ticket = ticket;
    client.post(copy);
  }
  wire::Completed completed() {
    const auto push = client.next_push();
    REQUIRE(push.message == wire::Control::completed);
    wire::Reader in(push.fields);
    wire::Completed body;
    REQUIRE(wire::Completed::decode(in, body));
    return body;
  }
  wire::Copied copied(std::size_t size) {
    const auto [body, bytes] = any_copied();
    CHECK(bytes == size);
    return body;
  }
  /// With the number of its bytes.
  std::pair<wire::Copied, std::size_t> any_copied() {
    const auto push = client.next_push();
    REQUIRE(push.message == wire::Control::copied);
    wire::Reader in(push.fields);
    wire::Copied body;
    REQUIRE(wire::Copied::decode(in, body));
    return {body, push.payload.size()};
  }

  std::uint64_t stream = SessionTestClient::handle(wire::Kind::stream, 1);
  std::uint64_t event = SessionTestClient::handle(wire::Kind::event, 1);
  SessionTestClient client;
};

}  // namespace

TEST_CASE("what is watched is told when it is complete, once") {
  Session session;
  const Held held;
  const auto place = session.watch_event();
  messages::WatchStream watch;
  watch.watch = watch.stream = session.stream;
  session.client.post(watch);
  CHECK(session.client.deferred() == CUDA_SUCCESS);
  CHECK(session.client.pushes.empty());
  Held::let_go();
  // In either order: they may be let go between the looks at the one and at the other.
  const auto first = session.completed(), second = session.completed();
  const bool in_order = first.watch == session.event;
  const auto& of_event = in_order ? first : second;
  const auto& of_stream = in_order ? second : first;
  CHECK(of_event.watch == session.event);
  CHECK(of_event.result == CUDA_SUCCESS);
  CHECK(of_event.through >= place);  // the ping behind it had been executed
  CHECK(of_stream.watch == session.stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(session.client.deferred() == CUDA_SUCCESS);
  CHECK(session.client.pushes.empty());
}

TEST_CASE("a watch of the legacy stream does not end the capture of a stream that it waits for") {
  Session session;
  messages::cuStreamBeginCapture_v2 begin;
  begin.hStream = session.stream;
  REQUIRE(session.client.ask(begin).header.result == CUDA_SUCCESS);
  messages::WatchStream watch;
  watch.watch = SessionTestClient::handle(wire::Kind::stream, 9);
  watch.stream = 0;
  session.client.post(watch);
  for (int n = 0; n < 20; ++n) {
    CHECK(session.client.deferred() == CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(session.client.pushes.empty());
  messages::cuStreamEndCapture end;
  end.hStream = session.stream;
  end.phGraph = SessionTestClient::handle(wire::Kind::graph, 1);
  CHECK(session.client.ask(end).header.result == CUDA_SUCCESS);
  CHECK(session.completed().result == CUDA_SUCCESS);
}

TEST_CASE("a watch brings the error of an earlier post") {
  Session session;
  messages::cuEventRecord wrong;
  wrong.hEvent = session.event;
  wrong.hStream = SessionTestClient::handle(wire::Kind::stream, 77);
  session.client.post(wrong);
  session.watch_event();
  const auto told = session.completed();
  CHECK(told.deferred_error == CUDA_ERROR_INVALID_HANDLE);
  CHECK(told.deferred_message == static_cast<std::uint32_t>(MessageId::cuEventRecord));
  CHECK(session.client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("what does not exist or goes is told too, so that no watch stays") {
  Session session;
  messages::WatchEvent unknown;
  unknown.watch = SessionTestClient::handle(wire::Kind::event, 9);
  session.client.post(unknown);
  CHECK(session.completed().result == CUDA_ERROR_INVALID_HANDLE);
  const Held held;
  session.watch_event();
  messages::cuEventDestroy_v2 destroy;
  destroy.hEvent = session.event;
  session.client.post(destroy);
  CHECK(session.completed().result == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a watch needs no lease") {
  Session session;
  REQUIRE(session.client.state.gate.revoke(1) == worker::LeaseAnswer::ok);
  session.watch_event();
  CHECK(session.completed().result == CUDA_SUCCESS);
}

TEST_CASE("what is told as complete leaves out what is kept for the next lease") {
  Session session;
  std::uint64_t place = 0;
  {
    const Held held;
    session.watch_event();
    CHECK(session.client.deferred() == CUDA_SUCCESS);
    REQUIRE(session.client.state.gate.revoke(1) == worker::LeaseAnswer::ok);
    messages::cuEventRecord record;
    record.hEvent = session.event;
    record.hStream = session.stream;
    session.client.post(record);
    place = session.client.sequence();
    CHECK(session.client.deferred() == CUDA_SUCCESS);
  }
  CHECK(session.completed().through < place);
  CHECK(session.client.drain(1000).header.status == wire::Status::not_attached);
  session.client.grant(2);
  CHECK(session.client.drain(1000).header.status == wire::Status::ok);
  session.watch_event();
  CHECK(session.completed().through >= place);
}

TEST_CASE("bytes of a copy come when it is complete, before anything that says so") {
  Session session;
  {
    const Held held;
    session.copy(5, 1000);
    session.copy(6, 3 << 20);
    session.watch_event();
    messages::cuStreamSynchronize synchronize;
    synchronize.hStream = session.stream;
    static_cast<void>(session.client.begin(synchronize, 1));
    const auto ping = session.client.begin(wire::Control::ping);
    CHECK(session.client.next().sequence == ping);  // nothing of it keeps the others
    CHECK(session.client.pushes.empty());
  }
  CHECK(session.client.next().header.result == CUDA_SUCCESS);
  REQUIRE(session.client.pushes.size() >= 2);
  // In either order: they may be let go between the looks at the one and at the other.
  std::map<std::uint64_t, std::size_t> bytes;
  for (int n = 0; n < 2; ++n) {
    const auto [body, size] = session.any_copied();
    bytes[body.ticket] = size;
  }
  CHECK(bytes == std::map<std::uint64_t, std::size_t>{{5, 1000}, {6, 3 << 20}});
  CHECK(session.completed().watch == session.event);
}

TEST_CASE("a copy that cannot be is told without bytes, and as the error of a post") {
  Session session;
  session.copy(7, 1000, SessionTestClient::arena + (std::uint64_t{1} << 38));
  CHECK(session.client.deferred() == CUDA_ERROR_INVALID_VALUE);
  CHECK(session.copied(0).result == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(session.client.state.gate.revoke(1) == worker::LeaseAnswer::ok);
  session.copy(8, 1000);
  CHECK(session.copied(0).result == CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_CASE("a client that asks for more copies than may be under way waits, and harms nobody") {
  auto session = std::make_unique<Session>();
  {
    const Held held;
    for (std::uint64_t n = 1; n <= 3 * wire::small_pieces; ++n) session->copy(n, 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::set<std::uint64_t> wanted, told;
  for (std::uint64_t n = 1; n <= 3 * wire::small_pieces; ++n) {
    wanted.insert(n);
    told.insert(session->copied(100).ticket);
  }
  CHECK(told == wanted);
  for (std::uint64_t n = 1; n <= 3 * wire::small_pieces; ++n) session->copy(n, 100);
  session.reset();  // it leaves without having read
}

TEST_CASE("more watches than a client may have end the connection") {
  auto session = std::make_unique<Session>();
  const Held held;
  for (std::size_t n = 0; n < wire::watches; ++n) session->watch_event();
  CHECK(session->client.deferred() == CUDA_SUCCESS);
  session->watch_event();
  CHECK(session->client.ended());
}
