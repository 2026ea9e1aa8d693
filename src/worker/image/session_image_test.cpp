// The manifest of a session image: what is written is read, and nothing else is.
#include "worker/image/session_image.h"

#include <doctest/doctest.h>

#include <cstring>

#include "worker/image/chunk_table.h"

using namespace gpupool;
using namespace gpupool::worker;

namespace {

SessionImage sample() {
  SessionImage image;
  image.fingerprint = 7;
  image.epoch = 3;
  image.client = 11;
  image.devices.push_back({"a device", 9, 0, 1u << 30, 2u << 20});
  image.chunks.push_back({{}, SessionImage::chunk_bytes, 0});
  image.chunks.push_back({{}, 100, SessionImage::chunk_bytes});
  image.memory.push_back({5, 0, 4u << 20, 1, 0, {4u << 20, {0, SessionImage::zeros}}});
  image.mappings.push_back({0, 1u << 30, 2u << 20, 0, 0, 3});
  image.calls.push_back({70, 1, 2, {std::byte{9}}, {}, {}});
  image.calls.push_back({71, 0, 0, {}, SessionImage::Bytes{100, {1}}, {"kernel", "other"}});
  image.variables.push_back({8, 9, "variable", {100, {1}}});
  image.link = {100, {1}};
  return image;
}

/// With the digest of what it is now.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  const auto body = std::span(bytes).first(bytes.size() - sizeof(Digest));
  const Digest digest = sha256(body);
  std::memcpy(bytes.data() + body.size(), digest.data(), sizeof(digest));
  return bytes;
}

}  // namespace

TEST_CASE("what is written is read") {
  std::string why;
  const auto bytes = sample().encode();
  const auto back = SessionImage::decode(bytes, why);
  REQUIRE(back);
  CHECK(back->encode() == bytes);
  CHECK(back->calls[1].kernels == std::vector<std::string>{"kernel", "other"});
  CHECK(back->memory[0].bytes.chunks[1] == SessionImage::zeros);
}

TEST_CASE("a manifest that is cut, damaged or of another version is refused") {
  const auto bytes = sample().encode();
  std::string why;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!SessionImage::decode(std::span(bytes).first(size), why));
  }
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    auto damaged = bytes;
    damaged[n] ^= std::byte{4};
    CHECK(!SessionImage::decode(damaged, why));
  }
  auto other = bytes;
  other[4] = std::byte{99};
  CHECK(!SessionImage::decode(sealed(other), why));
  CHECK(why == "it was written by another version");
}

TEST_CASE("a manifest whose digest is right may still contradict itself") {
  std::string why;
  const auto refused = [&](auto change) {
    SessionImage image = sample();
    change(image);
    return !SessionImage::decode(image.encode(), why);
  };
  CHECK(refused([](SessionImage& image) { image.memory[0].bytes.chunks[0] = 2; }));  // no such chunk
  CHECK(refused([](SessionImage& image) { image.memory[0].bytes.chunks[0] = 1; }));  // of another size
  CHECK(refused([](SessionImage& image) { image.memory[0].bytes.chunks.pop_back(); }));
  CHECK(refused([](SessionImage& image) { image.memory[0].size = 8u << 20; }));
  CHECK(refused([](SessionImage& image) { image.memory[0].device = 1; }));
  CHECK(refused([](SessionImage& image) { image.mappings[0].memory = 1; }));
  CHECK(refused([](SessionImage& image) { image.mappings[0].place = -1; }));
  CHECK(refused([](SessionImage& image) { image.link.size = 99; }));
  // Every byte changed and sealed again: read or refused, never out of bounds.
  const auto bytes = sample().encode();
  for (std::size_t n = 0; n + sizeof(Digest) < bytes.size(); ++n) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      auto changed = bytes;
      changed[n] = static_cast<std::byte>(value);
      static_cast<void>(SessionImage::decode(sealed(changed), why));
    }
  }
}

TEST_CASE("chunks are kept once, and zeros not at all") {
  ChunkTable table;
  bool fresh = false;
  std::vector<std::byte> piece(1000);
  CHECK(table.add(piece, fresh) == SessionImage::zeros);
  CHECK(!fresh);
  for (const std::size_t at : {std::size_t{0}, std::size_t{63}, std::size_t{64}, std::size_t{999}}) {
    std::fill(piece.begin(), piece.end(), std::byte{0});
    piece[at] = std::byte{1};
    CHECK(table.add(piece, fresh) != SessionImage::zeros);
    CHECK(fresh);
    CHECK(table.add(piece, fresh) != SessionImage::zeros);
    CHECK(!fresh);
  }
  CHECK(table.chunks().size() == 4);
  CHECK(table.bytes() == 4000);
  CHECK(table.chunks()[3].place == 3000);
  CHECK(all_zeros({}));
}
