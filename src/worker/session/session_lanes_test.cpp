// A session whose client has several threads: what one waits for does not keep the others.
#include <chrono>
#include <future>
#include <set>

#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

namespace {

/// Streams whose work does not end until this is destroyed, or let go.
struct Held {
  Held() { hold(true); }
  ~Held() { let_go(); }
  static void let_go() { hold(false); }
  static void hold(bool on) { worker::of_test_driver<void(bool)>("test_driver_hold")(on); }
};

std::uint64_t make_stream(SessionTestClient& client, std::uint32_t index) {
  messages::cuStreamCreate create;
  create.phStream = SessionTestClient::handle(wire::Kind::stream, index);
  client.post(create);
  return create.phStream;
}
messages::cuStreamSynchronize synchronize(std::uint64_t stream) {
  messages::cuStreamSynchronize wait;
  wait.hStream = stream;
  return wait;
}

}  // namespace

TEST_CASE("a lane that waits does not delay others, and is answered when it has waited") {
  SessionTestClient client;
  const auto stream = make_stream(client, 1);
  const Held held;
  const auto waiting = client.begin(synchronize(stream), 1);
  for (int n = 0; n < 3; ++n) {
    const auto quick = client.begin(wire::Control::ping);
    CHECK(client.next().sequence == quick);
  }
  Held::let_go();
  const auto last = client.next();
  CHECK(last.sequence == waiting);
  CHECK(last.header.result == CUDA_SUCCESS);
}

TEST_CASE("more waiting lanes than the worker has threads for delay nobody, and are answered") {
  SessionTestClient client;
  const auto stream = make_stream(client, 1);
  std::set<std::uint64_t> asked, answered;
  {
    const Held held;
    for (std::uint32_t lane = 1; lane <= 80; ++lane) asked.insert(client.begin(synchronize(stream), lane));
    const auto quick = client.begin(wire::Control::ping);
    CHECK(client.next().sequence == quick);
  }
  while (answered.size() < asked.size()) answered.insert(client.next().sequence);
  CHECK(answered == asked);
}

TEST_CASE("what another lane waits for is destroyed when the wait is over") {
  SessionTestClient client;
  const auto stream = make_stream(client, 1);
  messages::cuEventCreate create;
  create.phEvent = SessionTestClient::handle(wire::Kind::event, 1);
  client.post(create);
  messages::cuEventRecord record;
  record.hEvent = create.phEvent;
  record.hStream = stream;
  client.post(record);
  {
    const Held held;
    messages::cuEventSynchronize wait_for_event;
    wait_for_event.hEvent = create.phEvent;
    static_cast<void>(client.begin(synchronize(stream), 1));
    static_cast<void>(client.begin(wait_for_event, 2));
    messages::cuEventDestroy_v2 destroy_event;
    destroy_event.hEvent = create.phEvent;
    client.post(destroy_event);
    messages::cuStreamDestroy_v2 destroy_stream;
    destroy_stream.hStream = stream;
    client.post(destroy_stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(client.next().header.result == CUDA_SUCCESS);
  CHECK(client.next().header.result == CUDA_SUCCESS);
  CHECK(client.deferred() == CUDA_SUCCESS);
  CHECK(client.ask(synchronize(stream)).header.result == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a client that leaves while its lanes wait is gone when they have waited") {
  auto client = std::make_unique<SessionTestClient>();
  const auto stream = make_stream(*client, 1);
  std::future<void> gone;
  {
    const Held held;
    for (std::uint32_t lane = 1; lane <= 8; ++lane)
      static_cast<void>(client->begin(synchronize(stream), lane));
    CHECK(client->control(wire::Control::ping).header.result == CUDA_SUCCESS);
    gone = std::async(std::launch::async, [&] { client.reset(); });
    CHECK(gone.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  }
  CHECK(gone.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
}

TEST_CASE("each lane has a per-thread stream of its own") {
  SessionTestClient client;
  const Held held;
  const auto first = client.begin(synchronize(2), 1);  // a stream made for the lane, and so one that is held
  const auto second = client.begin(synchronize(0), 2);
  CHECK(client.next().sequence == second);
  Held::let_go();
  CHECK(client.next().sequence == first);
}
