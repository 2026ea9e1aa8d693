// A manifest that another worker or a file gave, and what a worker does that goes on from it: against the
// stand-in driver, which aborts on a handle that it did not give out.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "fuzz/memory_stream.h"
#include "fuzz/worker_frames.h"
#include "generated/message_ids.h"
#include "worker/conversation/link_state.h"
#include "worker/image/chunk_source.h"
#include "worker/image/session_image.h"
#include "worker/process/session_host.h"

using namespace gpupool;
using worker::SessionImage;

namespace {

constexpr std::uint64_t most_bytes = 8 << 20;  // of all chunks: more costs time and shows nothing
constexpr const char* ptx = ".version 8.0\n.target sm_80\n.global .u32 aa;\n";

/// Each chunk begins with a program and ends with a NUL, so that module images are among them.
std::vector<std::byte> content(std::uint32_t size, std::uint32_t number) {
  if (size == 0) return {};
  std::vector<std::byte> bytes(size, static_cast<std::byte>(number));
  std::memcpy(bytes.data(), ptx, std::min<std::size_t>(size, std::strlen(ptx) + 1));
  bytes.back() = std::byte{0};
  return bytes;
}

/// The conversation with the client, as another worker writes it.
std::vector<std::byte> conversation() {
  wire::Buffer buffer;
  wire::Writer out(buffer);
  worker::LinkState{}.encode(out);
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

class Contents final : public worker::ChunkSource {
 public:
  explicit Contents(std::uint32_t conversation) : conversation_(conversation) {}
  void announce(const std::vector<std::uint32_t>&) override {}
  void read(const SessionImage::Chunk& chunk, std::uint32_t number, std::span<std::byte> into) override {
    const auto bytes = number == conversation_ ? conversation() : content(chunk.size, number);
    std::copy_n(bytes.begin(), into.size(), into.begin());
  }

 private:
  std::uint32_t conversation_;
};

std::optional<SessionImage> decoded(std::span<const std::byte> body) {
  std::vector<std::byte> sealed(body.begin(), body.end());
  const Digest digest = sha256(body);
  sealed.insert(sealed.end(), digest.begin(), digest.end());
  std::string why;
  auto image = SessionImage::decode(sealed, why);
  if (image && image->encode() != sealed) std::abort();
  return image;
}

void go_on_from(SessionImage image) {
  // What would end it at once is made right, so that the rest is reached.
  image.fingerprint = table_fingerprint;
  image.session = {};
  image.epoch = fuzz::epoch - 1;
  image.client = 1;
  std::uint64_t bytes = 0;
  for (std::uint32_t n = 0; n < image.chunks.size(); ++n) {
    bytes += image.chunks[n].size;
    if (bytes > most_bytes) return;
    image.chunks[n].digest = sha256(content(image.chunks[n].size, n));
  }
  const auto talk = conversation();
  const auto last = static_cast<std::uint32_t>(image.chunks.size());
  image.chunks.push_back({sha256(talk), static_cast<std::uint32_t>(talk.size()), 0});
  image.link = {talk.size(), {last}};
  worker::WorkerState state;
  state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
  state.memory.emplace_back(64u << 20);
  const auto now = worker::boottime_ns();
  static_cast<void>(state.gate.grant(fuzz::epoch, now + 3'600'000'000'000, now));
  worker::SessionHost host(GPUPOOL_TEST_DRIVER, state);
  if (!image.devices.empty()) {
    image.devices.resize(1);
    SessionImage::Device& device = image.devices[0];
    device.arena = fuzz::arena;
    host.conversation().equipment().api.cuDeviceGetAttribute_(
        &device.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    host.conversation().equipment().api.cuDeviceGetAttribute_(
        &device.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  }
  try {
    Contents contents(last);
    host.resume_from(contents, image);
  } catch (const std::runtime_error& why) {
    if (std::getenv("FUZZ_SAY") != nullptr) std::puts(why.what());
  }
  if (state.memory[0].used() > state.memory[0].limit()) std::abort();
  fuzz::MemoryStream nothing({});
  host.serve(nothing, fuzz::hello_of(2));  // another client: everything is given back
  if (state.memory[0].used() != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (auto image = decoded(std::as_bytes(std::span(data, size)))) go_on_from(std::move(*image));
  return 0;
}
