#include "base/sha256.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace gpupool;

namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte value : digest) {
    text += "0123456789abcdef"[static_cast<unsigned>(value) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(value) & 15];
  }
  return text;
}

std::string hex_of(std::string_view text, Sha256::Compress compress) {
  Sha256 hash(compress);
  hash.update(std::as_bytes(std::span(text)));
  return hex(hash.finish());
}

std::vector<Sha256::Compress> implementations() {
  std::vector<Sha256::Compress> all{Sha256::portable()};
  if (Sha256::accelerated() != nullptr) all.push_back(Sha256::accelerated());
  return all;
}

}  // namespace

TEST_CASE("the vectors of the standard") {
  for (const auto compress : implementations()) {
    CHECK(hex_of("", compress) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex_of("abc", compress) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", compress) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(hex_of(std::string(1'000'000, 'a'), compress) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST_CASE("the digest does not depend on how the bytes are cut, nor on the implementation") {
  std::mt19937 random(7);
  for (std::size_t size = 0; size < 400; ++size) {
    std::vector<std::byte> bytes(size);
    for (auto& value : bytes) value = static_cast<std::byte>(random());
    const Digest whole = sha256(bytes);
    for (const auto compress : implementations()) {
      Sha256 hash(compress);
      for (std::span<const std::byte> left(bytes); !left.empty();) {
        const std::size_t part = std::min<std::size_t>(left.size(), 1 + random() % 150);
        hash.update(left.first(part));
        left = left.subspan(part);
      }
      CHECK(hash.finish() == whole);
    }
  }
}
