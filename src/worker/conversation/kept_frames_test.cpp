#include "worker/conversation/kept_frames.h"

#include <doctest/doctest.h>

using namespace gpupool::worker;

TEST_CASE("kept frames come back in their order, and only so many are kept") {
  KeptFrames kept;
  constexpr std::size_t size = std::size_t{8} << 20;
  for (std::uint32_t n = 0; n < KeptFrames::most_bytes / size; ++n) {
    REQUIRE(kept.has_room(size));
    kept.add({n + 1, 1, n, std::vector<std::byte>(size / 2), std::vector<std::byte>(size / 2)});
  }
  CHECK_FALSE(kept.has_room(1));
  for (std::uint32_t n = 0; n < KeptFrames::most_bytes / size; ++n) {
    CHECK(kept.first().lane == n);
    kept.drop_first();
  }
  CHECK(kept.empty());
  CHECK(kept.has_room(KeptFrames::most_bytes));
  CHECK_FALSE(kept.has_room(KeptFrames::most_bytes + 1));
}
