// What another worker says of its conversation with a client, and a client that goes on with it.
//
// Input: a u16 length and an encoded LinkState; u8, how far behind the client is; a script of frames.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fuzz/frame_script.h"
#include "fuzz/memory_stream.h"
#include "fuzz/worker_frames.h"
#include "wire/hello.h"
#include "worker/conversation/link_state.h"
#include "worker/process/session_host.h"

using namespace gpupool;

namespace {

struct Worker {
  Worker() : host(GPUPOOL_TEST_DRIVER, prepared()) {}
  worker::WorkerState& prepared() {
    state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
    state.memory.emplace_back(64u << 20);
    const auto now = worker::boottime_ns();
    static_cast<void>(state.gate.grant(fuzz::epoch, now + 3'600'000'000'000'000, now));
    return state;
  }
  worker::WorkerState state;
  worker::SessionHost host;
  std::uint64_t pid = 0;
};

std::vector<std::byte> hello_again(const worker::LinkState& link, std::uint8_t behind) {
  auto hello = fuzz::hello_of(link.client);
  wire::HelloBody body{};
  std::memcpy(&body, hello.data() + sizeof(wire::FrameHeader), sizeof(body));
  body.connection = link.connection + 1;
  body.sent = link.received + behind % 4;
  body.taken = link.pushed - std::min<std::uint64_t>(behind / 4, link.pushed);
  std::memcpy(hello.data() + sizeof(wire::FrameHeader), &body, sizeof(body));
  return hello;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Worker& only = *new Worker;  // the driver ends before it would
  wire::Reader in(std::as_bytes(std::span(data, size)));
  const auto length = in.get<std::uint16_t>();
  const auto encoded = in.take(std::min<std::size_t>(length, in.rest().size()));
  const auto behind = in.get<std::uint8_t>();
  worker::LinkState link;
  wire::Reader link_in(encoded);
  if (!worker::LinkState::decode(link_in, link)) return 0;
  wire::Buffer again;
  wire::Writer out(again);
  link.encode(out);
  if (again.size() != encoded.size() || std::memcmp(again.data(), encoded.data(), again.size()) != 0)
    std::abort();

  fuzz::MemoryStream nothing({});
  only.host.serve(nothing, fuzz::hello_of(++only.pid));  // another client: from nothing
  link.client = only.pid;
  if (!only.host.conversation().go_on_from(link)) return 0;
  fuzz::WorkerFrames fill;
  const auto frames = fuzz::frames_of(
      in.rest(),
      [&](const fuzz::FrameRecord& record, wire::FrameHeader& header) {
        const bool payload = fill(record, header);
        if (header.sequence != 0) header.sequence += link.received - 1;  // it counts from 2
        return payload;
      },
      std::byte{'.'});
  fuzz::MemoryStream client(frames);
  only.host.serve(client, hello_again(link, behind));
  if (only.state.memory[0].used() > only.state.memory[0].limit()) std::abort();
  return 0;
}
