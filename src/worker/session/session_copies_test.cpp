// Copies that the worker makes of its own accord.
#include "worker/objects/device_arena.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::DeviceArena;
using worker::SessionTestClient;

namespace {

std::uint64_t map(SessionTestClient& client, int device) {
  messages::MapMemory map;
  map.device = device;
  map.address = SessionTestClient::arena + static_cast<std::uint64_t>(device) * DeviceArena::span;
  map.size = SessionTestClient::granularity;
  client.post(map);
  return map.address;
}

}  // namespace

TEST_CASE("pages are kept the same while a stream is captured that the legacy stream waits for") {
  SessionTestClient client;
  const std::uint64_t memory = map(client, 0);
  messages::cuStreamCreate create;
  create.phStream = SessionTestClient::handle(wire::Kind::stream, 1);
  create.Flags = CU_STREAM_DEFAULT;
  client.post(create);
  messages::cuStreamBeginCapture_v2 begin;
  begin.hStream = create.phStream;
  REQUIRE(client.ask(begin).header.result == CUDA_SUCCESS);
  messages::WritePages write;
  write.device = 0;
  write.address = memory;
  const std::vector<std::byte> bytes(8192);
  client.post(write, bytes);
  messages::ClearPages clear;
  clear.device = 0;
  clear.address = memory;
  clear.size = 4096;
  client.post(clear);
  CHECK(client.deferred() == CUDA_SUCCESS);
  messages::cuStreamEndCapture end;
  end.hStream = create.phStream;
  end.phGraph = SessionTestClient::handle(wire::Kind::graph, 1);
  CHECK(client.ask(end).header.result == CUDA_SUCCESS);
}
