// Posts that come when the lease has ended: a client cannot know at once, and loses nothing of them.
#include "worker/test_driver/session_test_client.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

using namespace gpupool;
using worker::SessionTestClient;

namespace {

constexpr std::uint64_t place = 0x1000, other_place = 0x2000;
constexpr std::size_t content_size = 20;

std::string content(char letter) {
  return std::string(content_size, letter);
}

/// What lies on the stand-in's device.
std::string read(std::uint64_t from) {
  auto& call = worker::of_test_driver<std::size_t(CUdeviceptr, std::byte*, std::size_t)>("test_driver_read");
  std::string bytes(content_size, '?');
  bytes.resize(call(from, reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
  return bytes;
}

/// The stand-in's device keeps what is copied to it, from the next wait on.
struct Contents {
  Contents() { worker::of_test_driver<bool>("test_driver_uses_pinned") = true; }
  ~Contents() { worker::of_test_driver<bool>("test_driver_uses_pinned") = false; }
};

/// A client whose first lease has ended.
struct Client : Contents, SessionTestClient {
  Client() {
    copy(place, 'a');
    CHECK(synchronize().status == wire::Status::ok);
    REQUIRE(state.gate.revoke(1) == worker::LeaseAnswer::ok);
  }
  void copy(std::uint64_t to, char letter, std::uint64_t stream = 0) {
    messages::CopyFromHost copy;
    copy.address = to;
    copy.stream = stream;
    copy.asynchronous = 1;
    const std::string bytes = content(letter);
    post(copy, std::as_bytes(std::span(bytes)));
  }
  wire::ReplyHeader synchronize() {
    messages::SynchronizeContext synchronize;
    synchronize.context = context();
    return ask(synchronize).header;
  }
  void create_stream(std::uint32_t index) {
    messages::cuStreamCreate create;
    create.phStream = handle(wire::Kind::stream, index);
    post(create);
  }
  void destroy_stream(std::uint32_t index) {
    messages::cuStreamDestroy_v2 destroy;
    destroy.hStream = handle(wire::Kind::stream, index);
    post(destroy);
  }
};

}  // namespace

TEST_CASE(
    "posts without a lease are executed under the next one, in order, and an ask between them is refused") {
  Client client;
  client.copy(place, 'b');
  const auto refused = client.synchronize();
  CHECK(refused.status == wire::Status::past_epoch);
  CHECK(refused.deferred_error == CUDA_SUCCESS);
  client.copy(place, 'c');
  client.copy(other_place, 'd');
  CHECK(client.deferred() == CUDA_SUCCESS);
  CHECK(read(place) == content('a'));  // no lease, no computing
  client.grant(2);
  CHECK(client.synchronize().status == wire::Status::ok);
  CHECK(read(place) == content('c'));
  CHECK(read(other_place) == content('d'));
  CHECK(client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("a post that was sent before the client heard of its new lease is executed under it") {
  Client client;
  client.grant(2);
  client.epoch = 1;
  client.copy(place, 'b');
  CHECK(client.synchronize().status == wire::Status::past_epoch);
  client.epoch = 2;
  CHECK(client.synchronize().status == wire::Status::ok);
  CHECK(read(place) == content('b'));
  CHECK(client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("what is freed does not overtake what uses it") {
  Client client;
  client.create_stream(3);
  client.copy(place, 'e', SessionTestClient::handle(wire::Kind::stream, 3));
  client.destroy_stream(3);
  CHECK(client.deferred() == CUDA_SUCCESS);
  client.grant(2);
  CHECK(client.control(wire::Control::lease).header.deferred_error == CUDA_SUCCESS);
  CHECK(client.synchronize().status == wire::Status::ok);
  CHECK(client.deferred() == CUDA_SUCCESS);
  CHECK(read(place) == content('e'));
}

TEST_CASE("what was kept is executed although the client says nothing more") {
  Client client;
  messages::MapMemory map;
  map.address = SessionTestClient::arena;
  map.size = SessionTestClient::granularity;
  client.post(map);
  CHECK(client.deferred() == CUDA_SUCCESS);
  CHECK(client.state.memory[0].used() == 0);
  client.grant(2);
  for (int n = 0; n < 1000 && client.state.memory[0].used() == 0; ++n) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(client.state.memory[0].used() == map.size);
}

TEST_CASE("an error of what was kept is told like that of any post") {
  Client client;
  messages::cuEventRecord wrong;
  wrong.hEvent = SessionTestClient::handle(wire::Kind::event, 77);
  client.post(wrong);
  CHECK(client.deferred() == CUDA_SUCCESS);
  client.grant(2);
  CHECK(client.synchronize().deferred_error == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a call that needs an answer and no lease waits behind what is kept") {
  Client client;
  client.copy(place, 'g');
  messages::cuTexObjectDestroy destroy;
  destroy.texObject = 12345;
  const std::uint64_t waits = client.begin(destroy, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(read(place) == content('a'));
  client.grant(2);
  CHECK(client.next().sequence == waits);
  CHECK(client.synchronize().status == wire::Status::ok);
  CHECK(read(place) == content('g'));
}

TEST_CASE("a client that sends too much without a lease is told that the rest is lost") {
  Client client;
  const std::string large(std::size_t{100} << 20, 'h');
  messages::CopyFromHost copy;
  copy.address = place;
  for (int n = 0; n < 2; ++n) client.post(copy, std::as_bytes(std::span(large)));
  CHECK(client.deferred() == CUDA_SUCCESS);
  client.post(copy, std::as_bytes(std::span(large)));
  CHECK(client.deferred() == CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_CASE("what is kept goes with the session to another worker, which believes nothing of it") {
  std::optional<worker::LinkState> going;
  {
    Client client;
    client.copy(place, 'i');
    CHECK(client.deferred() == CUDA_SUCCESS);
    auto held = client.session().conversation().hold();
    going = client.session().conversation().link_state();
  }
  REQUIRE(going);
  REQUIRE(going->kept.size() == 1);
  CHECK(going->kept[0].payload.size() == content_size);

  const auto taken = [&](const auto& change) {
    worker::WorkerState state;
    state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
    state.memory.emplace_back(64u << 20);
    const auto other = worker::SessionHost::open(GPUPOOL_TEST_DRIVER, state);
    worker::LinkState link = *going;
    change(link.kept[0]);
    return other->conversation().go_on_from(link);
  };
  CHECK(taken([](worker::KeptFrame&) {}));
  CHECK_FALSE(taken([](worker::KeptFrame& frame) { frame.message = 0; }));
  CHECK_FALSE(taken([](worker::KeptFrame& frame) { frame.message = wire::first_call + message_count; }));
  CHECK_FALSE(taken([](worker::KeptFrame& frame) { frame.payload.pop_back(); }));
  CHECK_FALSE(taken([](worker::KeptFrame& frame) { frame.body.resize(4); }));
  CHECK_FALSE(taken([](worker::KeptFrame& frame) {
    frame.message = static_cast<std::uint16_t>(messages::SynchronizeContext::id);
  }));
}
