// The ring carries bytes unchanged, and a hostile other end can make it neither read nor write outside of it.
#include "wire/transport/shared_ring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

using namespace gpupool::wire;

namespace {

constexpr std::uint64_t size = 4096;

/// A ring with guards before and after its data.
struct Ring {
  static constexpr std::size_t guard = 256;
  Ring() : memory(size + 2 * guard, std::byte{0x77}) {}
  [[nodiscard]] bool guards_intact() const {
    const auto whole = [](std::byte b) { return b == std::byte{0x77}; };
    return std::all_of(memory.begin(), memory.begin() + guard, whole) &&
           std::all_of(memory.end() - guard, memory.end(), whole);
  }
  std::vector<std::byte> memory;
  RingIndices indices{};
  RingWriter writer{indices, memory.data() + guard, size};
  RingReader reader{indices, memory.data() + guard, size};
};

std::vector<std::byte> pattern(std::size_t count, std::size_t from) {
  std::vector<std::byte> bytes(count);
  for (std::size_t n = 0; n < count; ++n) bytes[n] = static_cast<std::byte>((from + n) * 31 >> 2);
  return bytes;
}

}  // namespace

TEST_CASE("bytes come out of the ring as they went in, over its edge many times") {
  Ring ring;
  std::mt19937 random(3);
  std::size_t put = 0, taken = 0;
  while (taken < 40 * size) {
    const auto bytes = pattern(random() % (size + 100), put);
    put += ring.writer.write_some(bytes.data(), bytes.size());
    CHECK(put - taken <= size);
    std::vector<std::byte> got(random() % (size + 100));
    got.resize(ring.reader.read_some(got.data(), got.size()));
    REQUIRE(got == pattern(got.size(), taken));
    taken += got.size();
    CHECK(ring.reader.available() == put - taken);
    CHECK(ring.writer.room() == size - (put - taken));
  }
  CHECK_FALSE(ring.writer.broken());
  CHECK_FALSE(ring.reader.broken());
}

TEST_CASE("a position that cannot be breaks the ring for good") {
  for (const std::uint64_t head : {size + 1, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Ring ring;
    ring.indices.head.store(head);
    std::vector<std::byte> into(2 * size);
    CHECK(ring.reader.read_some(into.data(), into.size()) == 0);
    CHECK(ring.reader.broken());
    ring.indices.head.store(1);
    CHECK(ring.reader.read_some(into.data(), into.size()) == 0);
  }
  for (const std::uint64_t tail : {std::uint64_t{11}, ~std::uint64_t{0} - size, std::uint64_t{1} << 63}) {
    Ring ring;
    const auto bytes = pattern(10, 0);
    REQUIRE(ring.writer.write_some(bytes.data(), bytes.size()) == 10);
    ring.indices.tail.store(tail);
    CHECK(ring.writer.write_some(bytes.data(), bytes.size()) == 0);
    CHECK(ring.writer.broken());
  }
}

TEST_CASE("whatever the other end writes into the indices, nothing outside the ring is touched") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    Ring ring;
    std::vector<std::byte> bytes(size + 50, std::byte{1});
    for (int n = 0; n < 6; ++n) {
      const std::uint64_t any = random() % 3 == 0 ? random() : random() % (2 * size);
      switch (random() % 4) {
        case 0:
          ring.indices.head.store(any);
          break;
        case 1:
          ring.indices.tail.store(any);
          break;
        case 2:
          REQUIRE(ring.writer.write_some(bytes.data(), random() % bytes.size()) <= size);
          break;
        default:
          REQUIRE(ring.reader.read_some(bytes.data(), size) <= size);
          break;
      }
    }
    REQUIRE(ring.guards_intact());
  }
}
