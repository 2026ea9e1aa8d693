// A block's memory is zeroed whenever it is handed out, and small pieces of it are used again.
#include "softgpu/exec/run/block_pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace softgpu {
namespace {

bool is_zero(const BlockPages& pages, size_t bytes) {
  return std::all_of(pages.data(), pages.data() + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST_CASE("memory that a block used is zero for the next one") {
  // In a thread of its own, which has kept nothing yet.
  std::thread([] {
    const std::byte* before = nullptr;
    for (const size_t bytes : {size_t{5000}, size_t{200}, size_t{5000}, size_t{64} << 10}) {
      const BlockPages pages(bytes);
      CHECK(is_zero(pages, bytes));
      std::memset(pages.data(), 0xff, bytes);
      if (bytes == 200) CHECK(pages.data() == before);  // what held 5000 holds these too
      before = pages.data();
    }
  }).join();
}

TEST_CASE("no two blocks have the same memory") {
  std::vector<BlockPages> blocks;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 10; ++i) {
      blocks.emplace_back(4096);
      CHECK(is_zero(blocks.back(), 4096));
      std::memset(blocks.back().data(), i + 1, 4096);
    }
    for (int i = 0; i < 10; ++i) CHECK(blocks[static_cast<size_t>(i)].data()[4095] == std::byte(i + 1));
    blocks.clear();
  }
}

TEST_CASE("large memory goes back to the system, none is none") {
  constexpr size_t large_bytes = 64 << 20;
  BlockPages large(large_bytes);
  large.data()[large_bytes - 1] = std::byte{1};
  CHECK(BlockPages(0).data() == nullptr);
  BlockPages moved(std::move(large));
  CHECK(moved.data() != nullptr);
  CHECK(large.data() == nullptr);  // NOLINT: what was moved from holds nothing
}

}  // namespace
}  // namespace softgpu
