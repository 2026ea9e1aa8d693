// Copies that the worker makes of its own accord, and between its devices.
#include "worker/objects/device_arena.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::DeviceArena;
using worker::of_test_driver;
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

/// The driver has two devices while this lives.
struct TwoDevices {
  TwoDevices() { of_test_driver<int>("test_driver_devices") = 2; }
  ~TwoDevices() { of_test_driver<int>("test_driver_devices") = 1; }
};

/// Whether the last copy said in which contexts its ends are, and that these are two.
bool was_between_devices() {
  auto* const peers = &of_test_driver<CUcontext>("test_driver_peers");
  return peers[0] != nullptr && peers[1] != nullptr && peers[0] != peers[1];
}

/// What the driver copies stays under way until its stream is waited for.
struct LateCopies {
  LateCopies() { of_test_driver<bool>("test_driver_uses_pinned") = true; }
  ~LateCopies() { of_test_driver<bool>("test_driver_uses_pinned") = false; }
};

std::size_t bytes_at(std::uint64_t address) {
  std::byte none{};
  return of_test_driver<std::size_t(CUdeviceptr, std::byte*, std::size_t)>("test_driver_read")(address, &none,
                                                                                               1);
}

}  // namespace

TEST_CASE("a copy from the host that the program takes for done is done when the next frame is read") {
  const LateCopies late;
  SessionTestClient client;
  const std::uint64_t memory = map(client, 0);
  const std::vector<std::byte> bytes(32768, std::byte{7});
  for (const bool asynchronous : {true, false}) {
    CAPTURE(asynchronous);
    messages::CopyFromHost copy;
    copy.address = memory + (asynchronous ? 0 : 65536);
    copy.asynchronous = asynchronous;
    client.post(copy, bytes);
    CHECK(client.deferred() == CUDA_SUCCESS);  // asked for behind it
    CHECK(bytes_at(copy.address) == (asynchronous ? 0 : bytes.size()));
  }
}

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

TEST_CASE("a copy between two devices names a context of each, one on a device does not") {
  const TwoDevices two;
  SessionTestClient client(64u << 20, {},
                           {"01010101010101010101010101010101", "02020202020202020202020202020202"});
  const std::uint64_t here = map(client, 0), there = map(client, 1);
  for (const bool apart : {true, false}) {
    CAPTURE(apart);
    messages::cuMemcpyDtoD_v2 plain;
    plain.dstDevice = here;
    plain.srcDevice = apart ? there : here + 8192;
    plain.ByteCount = 4096;
    client.post(plain);
    CHECK(client.deferred() == CUDA_SUCCESS);
    CHECK(was_between_devices() == apart);
    messages::cuMemcpyDtoDAsync_v2 in_stream;
    in_stream.dstDevice = plain.srcDevice;
    in_stream.srcDevice = plain.dstDevice;
    in_stream.ByteCount = 4096;
    client.post(in_stream);
    CHECK(client.deferred() == CUDA_SUCCESS);
    CHECK(was_between_devices() == apart);
    messages::CopyRowsOnDevice rows;
    rows.destination = plain.dstDevice;
    rows.source = plain.srcDevice;
    rows.destination_pitch = rows.source_pitch = 64;
    rows.width = 32;
    rows.height = 4;
    rows.depth = 1;
    client.post(rows);
    CHECK(client.deferred() == CUDA_SUCCESS);
    CHECK(was_between_devices() == apart);
  }
}
