// What is waited for, and what is left alone, while a stream is captured.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "generated/wire/control.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

namespace {

/// Holds the stream that was made last.
void hold_newest(bool on) {
  worker::of_test_driver<void(bool)>("test_driver_hold_newest")(on);
}

struct Session {
  Session() {
    messages::cuEventCreate create;
    create.phEvent = event;
    client.post(create);
  }
  ~Session() { hold_newest(false); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  static std::uint64_t stream(std::uint32_t index) {
    return SessionTestClient::handle(wire::Kind::stream, index);
  }
  void create(std::uint32_t index) {
    messages::cuStreamCreate create;
    create.phStream = stream(index);
    create.Flags = CU_STREAM_NON_BLOCKING;
    client.post(create);
    REQUIRE(client.deferred() == CUDA_SUCCESS);
  }
  void work(std::uint32_t index) {
    messages::cuMemsetD8Async set;
    set.dstDevice = SessionTestClient::arena;
    set.N = 1;
    set.hStream = stream(index);
    client.post(set);
  }
  /// A stream whose work goes on until finish_barrier().
  void create_working(std::uint32_t index) {
    create(index);
    hold_newest(true);
    work(index);
  }
  void begin_capture(std::uint32_t index) {
    messages::cuStreamBeginCapture_v2 begin;
    begin.hStream = stream(index);
    REQUIRE(client.ask(begin).header.result == CUDA_SUCCESS);
  }
  int end_capture(std::uint32_t index) {
    messages::cuStreamEndCapture end;
    end.hStream = stream(index);
    end.phGraph = SessionTestClient::handle(wire::Kind::graph, index);
    return client.ask(end).header.result;
  }
  void record(std::uint32_t index, unsigned flags = 0) {
    messages::cuEventRecordWithFlags record;
    record.hEvent = event;
    record.hStream = stream(index);
    record.flags = flags;
    client.post(record);
  }
  void watch() {
    messages::WatchEvent watch;
    watch.watch = event;
    client.post(watch);
  }
  int watched() {
    const auto push = client.next_push();
    REQUIRE(push.message == wire::Control::completed);
    wire::Reader in(push.fields);
    wire::Completed body;
    REQUIRE(wire::Completed::decode(in, body));
    CHECK(body.watch == event);
    return body.result;
  }
  /// A barrier is answered while a stream is held. Nothing is held afterwards.
  void barrier_is_answered() {
    REQUIRE(client.deferred() == CUDA_SUCCESS);
    client.post(messages::Barrier{});
    const std::uint64_t ping = client.begin(wire::Control::ping);
    CHECK(client.next().sequence == ping);
    hold_newest(false);
  }
  /// Whether a barrier has waited for the stream that is held. Nothing is held afterwards.
  bool barrier_waits() {
    REQUIRE(client.deferred() == CUDA_SUCCESS);
    client.post(messages::Barrier{});
    const std::uint64_t ping = client.begin(wire::Control::ping);
    std::atomic<bool> let_go{false};
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      let_go = true;
      hold_newest(false);
    });
    const auto answer = client.next();
    const bool waited = let_go;
    later.join();
    CHECK(answer.sequence == ping);
    CHECK(answer.header.deferred_error == CUDA_SUCCESS);
    return waited;
  }

  std::uint64_t event = SessionTestClient::handle(wire::Kind::event, 1);
  SessionTestClient client;
};

}  // namespace

TEST_CASE("a barrier beside a capture waits for streams of whatever number") {
  Session session;
  constexpr std::uint32_t count = 20;
  for (std::uint32_t n = 1; n < count; ++n) {
    session.create(n);
    session.work(n);
  }
  session.create_working(count);
  session.create(count + 1);
  session.begin_capture(count + 1);
  CHECK(session.barrier_waits());
  CHECK(session.end_capture(count + 1) == CUDA_SUCCESS);
}

TEST_CASE("a barrier beside a capture waits for the work of a stream that was destroyed") {
  Session session;
  session.create_working(1);
  messages::cuStreamDestroy_v2 destroy;
  destroy.hStream = Session::stream(1);
  session.client.post(destroy);
  session.create(2);
  session.begin_capture(2);
  CHECK(session.barrier_waits());
  CHECK(session.end_capture(2) == CUDA_SUCCESS);
}

TEST_CASE("a barrier beside a capture waits for what the captured stream was given before") {
  Session session;
  session.create_working(1);
  session.begin_capture(1);
  session.work(1);
  CHECK(session.barrier_waits());
  CHECK(session.end_capture(1) == CUDA_SUCCESS);
}

TEST_CASE("a barrier beside a capture waits for what a stream was given before it joined") {
  Session session;
  session.create(1);
  session.create_working(2);
  session.begin_capture(1);
  session.record(1);
  messages::cuStreamWaitEvent join;
  join.hStream = Session::stream(2);
  join.hEvent = session.event;
  session.client.post(join);
  session.work(2);
  CHECK(session.barrier_waits());
  CHECK(session.end_capture(1) == CUDA_SUCCESS);
}

TEST_CASE("what is captured is no work that a barrier waits for") {
  Session session;
  session.create(1);
  hold_newest(true);  // it would be waited for, if it were asked
  session.begin_capture(1);
  session.work(1);
  session.barrier_is_answered();
  CHECK(session.end_capture(1) == CUDA_SUCCESS);
}

TEST_CASE("an event that is watched and then captured is not asked about") {
  Session session;
  session.create(1);
  session.create_working(2);
  session.record(2);
  session.watch();
  session.begin_capture(1);
  session.record(1);
  CHECK(session.watched() == CUDA_ERROR_CAPTURED_EVENT);
  session.watch();
  CHECK(session.watched() == CUDA_ERROR_CAPTURED_EVENT);
  hold_newest(false);
  CHECK(session.end_capture(1) == CUDA_SUCCESS);
  session.record(2);
  session.watch();
  CHECK(session.watched() == CUDA_SUCCESS);
}

TEST_CASE("an event that a graph records when it runs is asked about as before") {
  Session session;
  session.create(1);
  session.create_working(2);
  session.record(2);
  session.watch();
  session.begin_capture(1);
  session.record(1, CU_EVENT_RECORD_EXTERNAL);
  REQUIRE(session.client.deferred() == CUDA_SUCCESS);
  hold_newest(false);
  CHECK(session.watched() == CUDA_SUCCESS);
  CHECK(session.end_capture(1) == CUDA_SUCCESS);
}
