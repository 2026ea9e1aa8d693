// A session on its way from one worker to another, which says anything: both sides.
//
// Input: a byte that says which side; for the one that gets the session a u16 length and a manifest without
// its digest, which is put behind it; then a script of frames.
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "fuzz/frame_script.h"
#include "fuzz/memory_stream.h"
#include "fuzz/worker_frames.h"
#include "worker/moving/session_transfer.h"
#include "worker/moving/session_writer.h"
#include "worker/process/session_host.h"

using namespace gpupool;

namespace {

constexpr std::uint32_t most_chunk = 1 << 20;

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Replies: those that the script does not spoil are numbered by their messages.
bool reply_header(const fuzz::FrameRecord& record, wire::FrameHeader& header) {
  header.message = static_cast<std::uint16_t>(wire::Control::session);
  header.flags = wire::flag_reply | wire::flag_bulk;
  header.sequence = record.message;
  return true;
}

bool request_header(const fuzz::FrameRecord& record, wire::FrameHeader& header) {
  header.message = static_cast<std::uint16_t>(wire::Control::session);
  header.flags = record.message % 8 == 0 ? 0 : wire::flag_ask;
  return false;
}

std::vector<std::byte> with_manifest(std::span<const std::byte> manifest) {
  const Digest digest = sha256(manifest);
  const std::uint64_t size = manifest.size() + digest.size();
  std::vector<std::byte> bytes;
  wire::FrameHeader header{};
  header.length =
      sizeof(wire::FrameHeader) + sizeof(wire::ReplyHeader) + sizeof(std::uint32_t) + sizeof(size);
  static_cast<void>(reply_header({}, header));
  append(bytes, header);
  append(bytes, wire::ReplyHeader{});
  append(bytes, std::uint32_t{0});
  append(bytes, size);
  bytes.insert(bytes.end(), manifest.begin(), manifest.end());
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

void get_session(std::span<const std::byte> input) {
  wire::Reader in(input);
  const auto length = in.get<std::uint16_t>();
  const auto manifest = in.take(std::min<std::size_t>(length, in.rest().size()));
  auto said = with_manifest(manifest);
  const auto frames = fuzz::frames_of(in.rest(), reply_header, std::byte{0});
  said.insert(said.end(), frames.begin(), frames.end());
  try {
    worker::SessionFetcher fetcher(std::make_unique<fuzz::MemoryStream>(said));
    const auto& chunks = fetcher.image().chunks;
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t n = 0; n < chunks.size(); ++n) {
      if (chunks[n].size <= most_chunk) numbers.push_back(n);
    }
    fetcher.announce(numbers);
    for (const std::uint32_t n : numbers) {
      std::vector<std::byte> content(chunks[n].size);
      fetcher.read(chunks[n], n, content);
    }
    fetcher.take_over();
  } catch (const std::runtime_error&) {
    return;  // a refusal
  }
}

/// A session with a stream and memory, the same for all inputs: it is written down again each time.
struct Owner {
  Owner() : host(GPUPOOL_TEST_DRIVER, prepared()) {
    std::vector<std::byte> stream;
    fuzz::WorkerFrames fill;
    const auto call = [&](const auto& message) {
      wire::Buffer body;
      wire::Writer out(body);
      message.encode(out);
      std::vector<std::byte> script;
      const auto row = static_cast<std::uint16_t>(std::decay_t<decltype(message)>::id) - wire::first_call;
      fuzz::append_record(script, {static_cast<std::uint16_t>(row), 0, 0, body.bytes()}, false);
      const auto frame = fuzz::frames_of(script, std::ref(fill), std::byte{0});
      stream.insert(stream.end(), frame.begin(), frame.end());
    };
    messages::cuStreamCreate create;
    create.phStream = wire::Handle{wire::Kind::stream, 0, 1}.value();
    call(create);
    messages::MapMemory map;
    map.address = fuzz::arena;
    map.size = 4u << 20;
    call(map);
    fuzz::MemoryStream client(stream);
    host.serve(client, fuzz::hello_of(1));
  }
  worker::WorkerState& prepared() {
    state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
    state.memory.emplace_back(64u << 20);
    const auto now = worker::boottime_ns();
    static_cast<void>(state.gate.grant(fuzz::epoch, now + 3'600'000'000'000'000, now));
    return state;
  }
  worker::WorkerState state;
  worker::SessionHost host;
};

void give_session(std::span<const std::byte> script) {
  static Owner& owner = *new Owner;  // the driver ends before it would
  const auto said = fuzz::frames_of(script, request_header, std::byte{0});
  fuzz::MemoryStream stream(said);
  worker::SessionWriter writer(owner.host.conversation());
  worker::SessionSender sender(stream);
  const auto result = sender.send(writer, [] { return false; });
  sender.conclude(result.refusal);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] % 2 == 0) {
    get_session(rest);
  } else {
    give_session(rest);
  }
  return 0;
}
