// Whatever a client sends, the worker survives it and passes no made-up handle to its driver.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "protocol/random_body.h"
#include "protocol/random_fill.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/transport/socket_stream.h"
#include "worker/conversation/dispatch.h"
#include "worker/lease/worker_state.h"
#include "worker/process/session_host.h"

using namespace gpupool;

namespace {

constexpr std::uint32_t epoch = 7;
constexpr std::uint64_t arena = std::uint64_t{6} << 44;

/// One frame: usually well formed, sometimes cut, lengthened, mislabelled or bit-flipped.
void append_frame(std::vector<std::byte>& out, random_fill::Source& source, std::uint64_t& sequence) {
  const auto row = source.random() % message_count;
  const worker::Dispatch& entry = worker::dispatch_table[row];
  wire::Buffer body;
  wire::Writer writer(body);
  random_bodies[row](source, writer);
  std::uint64_t payload = 0;
  if (entry.has_payload) {
    payload = source.random() % 3000;
    writer.put(payload);
  }
  std::vector<std::byte> bytes(body.bytes().begin(), body.bytes().end());
  const bool damaged = source.random() % 64 == 0;
  if (damaged && !bytes.empty()) {
    if (source.random() % 2 == 0) {
      bytes[source.random() % bytes.size()] ^= static_cast<std::byte>(1u << source.random() % 8);
    } else {
      bytes.resize(source.random() % (bytes.size() + 8));
    }
  }
  wire::FrameHeader header{};
  header.length = static_cast<std::uint32_t>(sizeof(header) + bytes.size());
  header.message = static_cast<std::uint16_t>(wire::first_call + row);
  header.flags = static_cast<std::uint16_t>((entry.is_ask ? wire::flag_ask : 0) |
                                            (entry.has_payload ? wire::flag_bulk : 0));
  header.epoch = source.random() % 32 == 0 ? epoch - 1 : epoch;
  header.sequence = ++sequence;
  if (damaged && source.random() % 4 == 0) header.message = static_cast<std::uint16_t>(source.random());
  const auto* const at = reinterpret_cast<const std::byte*>(&header);
  out.insert(out.end(), at, at + sizeof(header));
  out.insert(out.end(), bytes.begin(), bytes.end());
  out.resize(out.size() + payload, std::byte{'.'});  // passes for PTX
}

std::vector<std::byte> hello() {
  wire::FrameHeader header{};
  header.length = sizeof(wire::FrameHeader) + sizeof(wire::HelloBody);
  header.message = static_cast<std::uint16_t>(wire::Control::hello);
  header.flags = wire::flag_ask;
  wire::HelloBody body{};
  body.magic = wire::hello_magic;
  body.version = wire::protocol_version;
  body.pid = 1;
  body.arena_base = arena;
  std::vector<std::byte> bytes(header.length);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
  return bytes;
}

}  // namespace

TEST_CASE("a session survives random and damaged frames") {
  worker::WorkerState state;
  state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
  state.memory.emplace_back(64u << 20);
  REQUIRE(state.gate.grant(epoch, worker::boottime_ns() + 3'600'000'000'000, worker::boottime_ns()) ==
          worker::LeaseAnswer::ok);
  const auto session = worker::SessionHost::open(GPUPOOL_TEST_DRIVER, state);
  std::uint64_t sequence = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    wire::Socket client(fds[0]), served(fds[1]);
    random_fill::Source source(seed);
    source.arena = arena;
    std::vector<std::byte> stream;
    for (int n = 0; n < 300; ++n) append_frame(stream, source, sequence);
    std::thread sender([&] {
      wire::send_all(client.fd(), stream);
      shutdown(client.fd(), SHUT_WR);
    });
    std::thread reader([&] {
      char sink[4096];
      while (recv(client.fd(), sink, sizeof(sink), 0) > 0) {
      }
    });
    const auto greeting = hello();
    {
      wire::SocketStream stream(std::move(served));
      session->serve(stream, greeting);
    }
    sender.join();
    reader.join();
  }
  CHECK(state.usage.snapshot().posts > 1000);
  CHECK(state.memory[0].used() <= state.memory[0].limit());
}
