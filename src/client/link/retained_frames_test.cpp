#include "client/link/retained_frames.h"

#include <doctest/doctest.h>

#include <deque>
#include <random>

using namespace gpupool;
using client::RetainedFrames;

namespace {

/// One frame; a payload is behind it where `payload` says so.
void append(wire::Buffer& out, std::uint64_t sequence, std::size_t body, std::uint64_t payload, bool here) {
  wire::FrameHeader header{};
  header.length = static_cast<std::uint32_t>(sizeof(header) + body + (payload > 0 ? sizeof(payload) : 0));
  header.flags = payload > 0 ? wire::flag_bulk : 0;
  header.sequence = sequence;
  out.append(&header, sizeof(header));
  const std::vector<std::byte> filler(body + payload, std::byte{0xff});
  out.append(filler.data(), body);
  if (payload > 0) out.append(&payload, sizeof(payload));
  if (here) out.append(filler.data(), payload);
}

std::uint64_t first_number(const RetainedFrames::Chunk& chunk, std::size_t at) {
  wire::FrameHeader header{};
  REQUIRE(wire::read_front(chunk.frames.bytes().subspan(at), header));
  return header.sequence;
}

}  // namespace

TEST_CASE("what is acknowledged goes, what is not is found again from any frame on") {
  RetainedFrames retained;
  std::mt19937 random(1);
  std::uint64_t made = 0;
  for (int chunk = 0; chunk < 50; ++chunk) {
    wire::Buffer frames;
    const auto count = 1 + random() % 9;
    for (unsigned n = 0; n < count; ++n) {
      const bool last = n + 1 == count;
      const bool payload = random() % 3 == 0;
      append(frames, ++made, random() % 50, payload ? 1 + random() % 300 : 0, !last);
    }
    REQUIRE(retained.keep(frames, made) != nullptr);
    CHECK(frames.size() == 0);
  }
  for (std::uint64_t number = 0; number < made; ++number) {
    auto* const chunk = retained.after(number);
    REQUIRE(chunk != nullptr);
    CHECK(first_number(*chunk, RetainedFrames::begin_after(*chunk, number)) == number + 1);
  }
  CHECK(retained.after(made) == nullptr);
  for (std::uint64_t number = 0; number < made; ++number) {
    retained.acknowledge(number);
    REQUIRE(retained.after(number) != nullptr);
    CHECK(retained.after(0) == retained.after(number));
  }
  retained.acknowledge(made);
  CHECK(retained.empty());
  CHECK(retained.bytes() == 0);
}

TEST_CASE("frames without a number are passed over with those before them") {
  RetainedFrames retained;
  wire::Buffer frames;
  append(frames, 1, 8, 0, false);
  append(frames, 0, 8, 0, false);
  append(frames, 2, 8, 0, false);
  retained.keep(frames, 2);
  auto* const chunk = retained.after(1);
  REQUIRE(chunk != nullptr);
  CHECK(first_number(*chunk, RetainedFrames::begin_after(*chunk, 1)) == 2);
}

TEST_CASE("a payload of its own is counted until it is acknowledged") {
  RetainedFrames retained;
  wire::Buffer frames;
  append(frames, 1, 8, 500, false);
  auto* const chunk = retained.keep(frames, 1);
  REQUIRE(chunk != nullptr);
  wire::Buffer copy;
  copy.grow(500);
  retained.own(*chunk, std::move(copy));
  CHECK(retained.copied_bytes() == 500);
  CHECK(chunk->payload_bytes == 500);
  CHECK(chunk->payload->iov_len == 500);
  retained.acknowledge(1);
  CHECK(retained.copied_bytes() == 0);
}

TEST_CASE("what could not be kept is known to be missing") {
  RetainedFrames retained;
  retained.miss(7);
  CHECK_FALSE(retained.complete_after(6));
  CHECK(retained.complete_after(7));
}
