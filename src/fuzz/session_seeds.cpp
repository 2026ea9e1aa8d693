// Sessions that move to another worker, as inputs from which fuzzing starts.
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/seed_folder.h"
#include "fuzz/worker_frames.h"
#include "generated/wire/control.h"
#include "wire/handle.h"
#include "worker/conversation/link_state.h"
#include "worker/image/session_image.h"

namespace gpupool::fuzz::seeds {
namespace {

constexpr std::uint64_t granule = 2 << 20;

template <class M>
worker::SessionImage::Call call_of(const M& message) {
  wire::Buffer body;
  wire::Writer out(body);
  message.encode(out);
  worker::SessionImage::Call call;
  call.message = static_cast<std::uint16_t>(M::id);
  call.context = wire::Handle{wire::Kind::context, 0, 0}.value();
  call.body.assign(body.bytes().begin(), body.bytes().end());
  return call;
}

template <class M>
worker::KeptFrame kept_of(std::uint64_t sequence, const M& message, std::size_t payload) {
  const auto call = call_of(message);
  return {sequence, call.message, 1, call.body, std::vector<std::byte>(payload)};
}

}  // namespace

/// A session with some of everything that moves. The fuzz target puts the digests right.
void session_images() {
  using worker::SessionImage;
  SessionImage image;
  image.devices.push_back({"a device", 9, 0, fuzz::arena, granule});
  const auto with_digest_cut_off = [](const SessionImage& whole) {
    auto bytes = whole.encode();
    bytes.resize(bytes.size() - sizeof(Digest));
    return bytes;
  };
  write("session_image", "unused", with_digest_cut_off(image));
  image.chunks.push_back({{}, SessionImage::chunk_bytes, 0});
  image.chunks.push_back({{}, 100, SessionImage::chunk_bytes});
  const std::uint64_t memory = wire::Handle{wire::Kind::allocation, 0, 1}.value();
  image.memory.push_back({memory, 0, 2 * granule, 0, 0, {2 * granule, {0, SessionImage::zeros}}});
  image.memory.push_back({0, 0, granule, 0, 0, {granule, {0}}});
  image.mappings.push_back({0, fuzz::arena, granule, 0, 1, 3});
  image.mappings.push_back({0, fuzz::arena + 4 * granule, granule, granule, 0, 1});
  const auto handle = [](wire::Kind kind) { return wire::Handle{kind, 0, 3}.value(); };
  messages::CreateContext context;
  context.context = handle(wire::Kind::context);
  image.calls.push_back(call_of(context));
  messages::cuStreamCreate stream;
  stream.phStream = handle(wire::Kind::stream);
  image.calls.push_back(call_of(stream));
  messages::cuEventCreate event;
  event.phEvent = handle(wire::Kind::event);
  image.calls.push_back(call_of(event));
  messages::cuCtxSetLimit limit;
  image.calls.push_back(call_of(limit));
  write("session_image", "no-image", with_digest_cut_off(image));
  messages::LoadImage load;
  load.image = handle(wire::Kind::module);
  image.calls.push_back(call_of(load));
  image.calls.back().content = SessionImage::Bytes{100, {1}};
  image.calls.back().kernels = {"kernel", "kernel"};
  messages::BindFunction bind;
  bind.image = load.image;
  bind.function = handle(wire::Kind::function);
  image.calls.push_back(call_of(bind));
  write("session_image", "module", with_digest_cut_off(image));
  image.chunks.push_back({{}, 4, 0});
  image.variables.push_back({load.image, 0, "aa", {4, {2}}});
  write("session_image", "variable", with_digest_cut_off(image));
}

/// A session that comes with a chunk, and one that goes.
void session_transfers() {
  worker::SessionImage image;
  image.chunks.push_back({{}, 100, 0});
  image.link = {100, {0}};
  auto manifest = image.encode();
  manifest.resize(manifest.size() - sizeof(Digest));
  std::vector<std::byte> script;
  wire::Buffer body;
  wire::Writer out(body);
  out.put(wire::ReplyHeader{});
  out.put_text("");
  fuzz::append_record(script, {0, 0, 100, body.bytes()}, true);
  fuzz::append_record(script, {0, 0, 0, body.bytes()}, true);
  wire::Buffer coming;
  wire::Writer in(coming);
  in.put(std::uint8_t{0});
  in.put(static_cast<std::uint16_t>(manifest.size()));
  in.append(manifest);
  in.append(script);
  write("session_transfer", "coming", coming.bytes());
  script.assign(1, std::byte{1});
  const std::uint32_t numbers[] = {0, 0};
  fuzz::append_record(script, {1, 0, 0, std::as_bytes(std::span(numbers))}, false);
  fuzz::append_record(script, {0, 0, 0, {}}, false);
  write("session_transfer", "going", script);
}

/// A conversation with something kept on both sides, and its client.
void link_states() {
  worker::LinkState link;
  link.client = 1;
  link.received = 9;
  link.pushed = 3;
  messages::CopyToHost read;
  wire::Buffer asked;
  wire::Writer ask(asked);
  wire::FrameHeader header{};
  header.message = static_cast<std::uint16_t>(messages::CopyToHost::id);
  header.flags = wire::flag_ask;
  header.epoch = fuzz::epoch;
  header.sequence = 9;
  ask.put(header);
  read.encode(ask);
  link.replies.push_back({1, 9, true, 0, 0, 0, {asked.bytes().begin(), asked.bytes().end()}});
  link.replies.push_back({2, 8, false, 0, 0, 0, std::vector<std::byte>(40)});
  link.pushes.push_back({2, std::vector<std::byte>(40)});
  link.pushes.push_back({3, std::vector<std::byte>(40)});
  messages::MapMemory map;
  map.address = fuzz::arena;
  map.size = granule;
  link.kept.push_back(kept_of(8, map, 0));
  messages::CopyFromHost copy;
  copy.address = fuzz::arena;
  copy.payload_size = 40;
  link.kept.push_back(kept_of(9, copy, copy.payload_size));
  for (const bool empty : {true, false}) {
    wire::Buffer encoded;
    wire::Writer encode(encoded);
    (empty ? worker::LinkState{} : link).encode(encode);
    std::vector<std::byte> script;
    for (const std::uint32_t lane : {1, 2}) {
      const wire::Buffer wanted = wire::packed(wire::Repeat{std::uint64_t{10 - lane}, lane});
      const auto again =
          static_cast<std::uint16_t>(message_count + static_cast<unsigned>(wire::Control::copied) - 1);
      fuzz::append_record(script, {again, 0, 0, wanted.bytes()}, false);
    }
    wire::Buffer whole;
    wire::Writer out(whole);
    out.put(static_cast<std::uint16_t>(encoded.size()));
    out.append(encoded.bytes());
    out.put(std::uint8_t{empty ? std::uint8_t{0} : std::uint8_t{5}});
    out.append(script);
    write("link_state", empty ? "empty" : "kept", whole.bytes());
  }
}

}  // namespace gpupool::fuzz::seeds
