#include "client/memory/arena_allocator.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

using namespace gpupool::client;

namespace {
constexpr std::uint64_t mib = 1u << 20;
constexpr std::uint64_t base = std::uint64_t{6} << 44;
constexpr std::uint64_t granularity = 2 * mib;

ArenaAllocator arena(std::uint64_t limit = 64 * mib) {
  return {base, std::uint64_t{1} << 40, granularity, limit};
}
}  // namespace

TEST_CASE("the first block maps one chunk; the next ones share it") {
  auto a = arena();
  const auto first = a.allocate(100, 1);
  REQUIRE(first);
  CHECK(first->map == ArenaAllocator::Range{base, granularity});
  const auto second = a.allocate(100, 1);
  REQUIRE(second);
  CHECK_FALSE(second->map);
  CHECK(second->address == first->address + ArenaAllocator::alignment);
  CHECK(a.used() == 2 * ArenaAllocator::alignment);
}

TEST_CASE("more than the share is refused without any effect") {
  auto a = arena(4 * mib);
  REQUIRE(a.allocate(3 * mib, 1));
  CHECK_FALSE(a.allocate(2 * mib, 1));
  CHECK_FALSE(a.allocate(std::uint64_t{1} << 60, 1));
  CHECK(a.inconsistency() == nullptr);
  CHECK(a.mapped() == 4 * mib);
}

TEST_CASE("a worker that promises more than its addresses makes no block that is not there") {
  for (const bool later : {false, true}) {
    auto a = arena(later ? 4 * mib : ~std::uint64_t{0});
    if (later) a.set_limit(~std::uint64_t{0});
    for (const std::uint64_t less : {0, 1, 510, 511, 512})
      CHECK_FALSE(a.allocate(~std::uint64_t{0} - less, 1));
    CHECK_FALSE(a.allocate((std::uint64_t{1} << 40) + 1, 1));
    CHECK(a.allocate(std::uint64_t{1} << 40, 1));
    CHECK(a.inconsistency() == nullptr);
  }
}

TEST_CASE("free chunks are given up when the room is needed elsewhere") {
  auto a = arena(8 * mib);
  const auto small = a.allocate(2 * mib, 1);
  std::vector<ArenaAllocator::Range> unmap;
  REQUIRE(a.free(small->address, 1, 0, unmap));
  CHECK(unmap.empty());  // kept, so that the next one is cheap
  const auto large = a.allocate(8 * mib, 1);
  REQUIRE(large);
  CHECK(large->unmap == std::vector<ArenaAllocator::Range>{{small->address, granularity}});
  CHECK(large->map);
}

TEST_CASE("a block keeps its owner until it is freed") {
  auto a = arena();
  const auto first = a.allocate(100, 1, 0, 7);
  const auto second = a.allocate(100, 1);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(a.find(first->address)->owner == 7);
  CHECK(a.find(second->address)->owner == 0);
  std::vector<ArenaAllocator::Range> unmap;
  REQUIRE(a.free(first->address, 1, 0, unmap));
  REQUIRE(a.allocate(100, 1)->address == first->address);
  CHECK(a.find(first->address)->owner == 0);
}

TEST_CASE("memory freed while work may use it comes back only behind a barrier") {
  auto a = arena();
  std::vector<ArenaAllocator::Range> unmap;
  const auto block = a.allocate(granularity, 5);
  REQUIRE(a.free(block->address, 6, 0, unmap));
  SUBCASE("work not known to be finished: barrier, and only once") {
    CHECK(a.allocate(granularity / 2, 7)->barrier);
    CHECK_FALSE(a.allocate(granularity / 2, 7)->barrier);
  }
  SUBCASE("work finished: no barrier") {
    a.settled(6);
    CHECK_FALSE(a.allocate(granularity, 7)->barrier);
  }
}

TEST_CASE("stream-ordered memory is reused at once on its own stream only") {
  auto a = arena();
  std::vector<ArenaAllocator::Range> unmap;
  const auto block = a.allocate(granularity, 5, 11);
  REQUIRE(a.free(block->address, 6, 11, unmap));
  SUBCASE("same stream") {
    CHECK_FALSE(a.allocate(granularity, 7, 11)->barrier);
  }
  SUBCASE("other stream") {
    CHECK(a.allocate(granularity, 7, 12)->barrier);
  }
  SUBCASE("not stream-ordered") {
    CHECK(a.allocate(granularity, 7, 0)->barrier);
  }
}

TEST_CASE("what was freed on two streams belongs to neither once joined") {
  auto a = arena();
  std::vector<ArenaAllocator::Range> unmap;
  const auto left = a.allocate(granularity / 2, 1, 11), right = a.allocate(granularity / 2, 1, 12);
  REQUIRE(a.free(left->address, 5, 11, unmap));
  REQUIRE(a.free(right->address, 5, 12, unmap));
  CHECK(a.allocate(granularity, 6, 12)->barrier);
}

TEST_CASE("an address inside a block finds it; the padding behind it does not") {
  auto a = arena();
  const auto block = a.allocate(100, 1);
  REQUIRE(a.find(block->address + 99));
  CHECK(a.find(block->address + 99)->requested == 100);
  CHECK_FALSE(a.find(block->address + 100));
  CHECK_FALSE(a.find(base - 1));
  std::vector<ArenaAllocator::Range> unmap;
  CHECK_FALSE(a.free(block->address + 1, 1, 0, unmap));
}

TEST_CASE("any order of allocating and freeing keeps every invariant") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t limit = (8 + random() % 64) * mib;
    auto a = arena(limit);
    std::map<std::uint64_t, std::uint64_t> alive;   // address -> size: the model
    std::map<std::uint64_t, std::uint64_t> mapped;  // what the device would have
    std::uint64_t work = 1;
    const auto give_up = [&](const std::vector<ArenaAllocator::Range>& ranges) {
      for (const auto& range : ranges) {
        REQUIRE(mapped.at(range.address) == range.size);
        mapped.erase(range.address);
        const auto next = alive.lower_bound(range.address);
        REQUIRE((next == alive.end() || next->first >= range.address + range.size));
      }
    };
    for (int step = 0; step < 1500; ++step) {
      work += random() % 2;
      if (random() % 16 == 0) a.settled(work);
      if (alive.empty() || random() % 5 < 3) {
        const std::uint64_t size = random() % 8 == 0 ? 1 + random() % (12 * mib) : 1 + random() % (256 << 10);
        const auto got = a.allocate(size, work, random() % 3);
        if (!got) continue;
        give_up(got->unmap);
        if (got->address == 0) continue;
        if (got->map) {
          REQUIRE(mapped.emplace(got->map->address, got->map->size).second);
        }
        REQUIRE(got->address % ArenaAllocator::alignment == 0);
        auto chunk = mapped.upper_bound(got->address);
        REQUIRE(chunk != mapped.begin());
        --chunk;
        REQUIRE(got->address + size <= chunk->first + chunk->second);
        const auto next = alive.lower_bound(got->address);
        REQUIRE((next == alive.end() || got->address + size <= next->first));
        if (next != alive.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= got->address);
        alive.emplace(got->address, size);
      } else {
        auto victim = alive.begin();
        std::advance(victim, static_cast<long>(random() % alive.size()));
        std::vector<ArenaAllocator::Range> unmap;
        REQUIRE(a.free(victim->first, work, random() % 3, unmap));
        alive.erase(victim);
        give_up(unmap);
      }
      std::uint64_t total = 0;
      for (const auto& [address, size] : mapped) total += size;
      REQUIRE(total == a.mapped());
      REQUIRE(total <= limit);
      REQUIRE_MESSAGE(a.inconsistency() == nullptr, a.inconsistency());
    }
  }
}

TEST_CASE("a share below what is taken hands nothing out, and goes on when it grows") {
  auto a = arena(16 * mib);
  REQUIRE(a.allocate(12 * mib, 1));
  a.set_limit(8 * mib);
  CHECK(a.taken() == 12 * mib);
  CHECK_FALSE(a.allocate(2 * mib, 1));
  a.set_limit(16 * mib);
  CHECK(a.allocate(4 * mib, 1));
  CHECK(a.inconsistency() == nullptr);
}

TEST_CASE("the largest free piece is what can be had, and not a byte more") {
  std::mt19937_64 random(22);
  auto a = arena();
  std::vector<std::uint64_t> blocks;
  std::vector<ArenaAllocator::Range> unmap;
  std::uint64_t charged = 0;
  for (int step = 0; step < 2000; ++step) {
    const std::uint64_t size = 1 + random() % (8 * mib);
    if (random() % 5 < 3) {
      if (const auto got = a.allocate(size, 1); got && got->address != 0) blocks.push_back(got->address);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      REQUIRE(a.free(blocks.back(), 1, 0, unmap));
      blocks.pop_back();
    }
    if (step % 500 == 250) {
      a.discharge(charged);
      charged = random() % 2 == 0 && a.charge(3 * mib, unmap) ? 3 * mib : 0;
    }
    const std::uint64_t largest = a.largest_free();
    const auto refused = a.allocate(largest + 1, 1);
    CHECK((!refused || refused->address == 0));
    if (largest == 0) continue;
    const auto had = a.allocate(largest, 1);
    REQUIRE(had);
    CHECK(had->address != 0);
    a.cancel(*had);
    CHECK(a.inconsistency() == nullptr);
  }
}

TEST_CASE("fragments make the largest free piece less than what is free") {
  auto a = arena(8 * mib);
  std::vector<std::uint64_t> blocks;
  for (int n = 0; n < 8; ++n) blocks.push_back(a.allocate(mib, 1)->address);
  std::vector<ArenaAllocator::Range> unmap;
  for (int n = 0; n < 8; n += 2) REQUIRE(a.free(blocks[static_cast<std::size_t>(n)], 1, 0, unmap));
  CHECK(a.limit() - a.used() == 4 * mib);
  CHECK(a.largest_free() == mib);
}

TEST_CASE("addresses that the program has reserved are no room") {
  ArenaAllocator a(base, 64 * mib, granularity, 64 * mib);
  REQUIRE(a.set_aside(48 * mib, granularity));
  CHECK(a.largest_free() == 16 * mib);
}

TEST_CASE("a share of the size that is needed has room, and one granule less has not") {
  for (const std::uint64_t size : {std::uint64_t{1}, 3 * mib, 5 * mib + 1, 40 * mib}) {
    auto a = arena(8 * mib);
    std::vector<ArenaAllocator::Range> unmap;
    const auto first = a.allocate(mib, 1);
    const auto kept = a.allocate(3 * mib, 1);
    REQUIRE((first && kept));
    REQUIRE(a.free(first->address, 1, 0, unmap));  // kept for later, and given up for what does not fit
    const std::uint64_t needed = a.needed_for(size);
    CHECK(needed >= a.used() + size);
    a.set_limit(needed - granularity);
    const bool fits_a_piece = size <= mib;
    CHECK((a.largest_free() >= size) == fits_a_piece);
    a.set_limit(needed);
    CHECK(a.largest_free() >= size);
  }
  CHECK(arena().needed_for(~std::uint64_t{0}) == ~std::uint64_t{0});
}

TEST_CASE("a block that could not be made ready is taken back, with the chunk that was not mapped") {
  auto a = arena();
  const auto first = a.allocate(3 * mib, 1);
  REQUIRE(first);
  a.cancel(*first);
  CHECK(a.inconsistency() == nullptr);
  CHECK(a.taken() == 0);
  CHECK(a.used() == 0);

  const auto kept = a.allocate(100, 1);
  const auto second = a.allocate(mib, 1);
  REQUIRE(kept);
  REQUIRE(second);
  std::vector<ArenaAllocator::Range> unmap;
  REQUIRE(a.free(second->address, 2, 0, unmap));
  const auto again = a.allocate(mib, 3);
  REQUIRE(again);
  CHECK(again->barrier);
  a.cancel(*again);
  CHECK(a.inconsistency() == nullptr);
  const auto third = a.allocate(mib, 3);  // what lay there before may still be in use
  REQUIRE(third);
  CHECK(third->barrier);
  CHECK(a.inconsistency() == nullptr);
}
