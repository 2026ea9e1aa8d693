// Which accesses race, and which do not.
#include "softgpu/exec/checks/race_detector.h"

#include <doctest/doctest.h>

using softgpu::RaceDetector;

namespace {

constexpr const char* some_place = "here";

bool writes(RaceDetector& detector, uint32_t thread, uint32_t offset, bool strong = false) {
  detector.advance();
  return detector.access({thread, offset, 4, some_place, true, strong}).has_value();
}
bool reads(RaceDetector& detector, uint32_t thread, uint32_t offset, bool strong = false) {
  detector.advance();
  return detector.access({thread, offset, 4, some_place, false, strong}).has_value();
}

}  // namespace

TEST_CASE("a write and any other access of another thread race; reads do not") {
  RaceDetector detector(64, 64);
  CHECK_FALSE(writes(detector, 0, 0));
  CHECK_FALSE(writes(detector, 0, 0));
  CHECK_FALSE(reads(detector, 0, 0));
  CHECK_FALSE(writes(detector, 1, 4));
  CHECK(reads(detector, 40, 0));
  CHECK_FALSE(reads(detector, 1, 32));
  CHECK_FALSE(reads(detector, 2, 32));
  CHECK(writes(detector, 1, 32));
}

TEST_CASE("bytes side by side are no race, and the report names the byte and who was there") {
  RaceDetector detector(8, 32);
  CHECK_FALSE(detector.access({3, 0, 2, some_place, true, false}).has_value());
  CHECK_FALSE(detector.access({4, 2, 2, some_place, true, false}).has_value());
  const auto race = detector.access({5, 0, 4, nullptr, false, false});
  REQUIRE(race.has_value());
  CHECK(race->offset == 0);
  CHECK(race->thread == 3);
  CHECK(race->where == some_place);
  CHECK(race->wrote);
}

TEST_CASE("a barrier of the block orders everything") {
  RaceDetector detector(64, 64);
  writes(detector, 0, 0);
  reads(detector, 1, 8);
  detector.synchronise_block();
  CHECK_FALSE(writes(detector, 40, 0));
  CHECK_FALSE(writes(detector, 40, 8));
  CHECK(reads(detector, 0, 0));
}

TEST_CASE("a synchronisation of lanes orders those lanes only") {
  RaceDetector detector(64, 64);
  writes(detector, 0, 0);
  detector.synchronise_warp(0, 0b11);
  CHECK_FALSE(reads(detector, 1, 0));
  CHECK(reads(detector, 2, 0));
  writes(detector, 33, 16);
  detector.synchronise_warp(0, 0xffffffff);
  CHECK(reads(detector, 5, 16));
}

TEST_CASE("what is seen is handed on: through a lane to another warp") {
  RaceDetector detector(64, 64);
  writes(detector, 3, 0);
  detector.synchronise_warp(0, 0xffffffff);
  detector.release(7, 0);
  detector.advance();
  detector.acquire(7, 32);
  CHECK_FALSE(reads(detector, 32, 0));
  CHECK(reads(detector, 33, 0));
  detector.synchronise_block();
  writes(detector, 3, 4);
  detector.release(7, 3);
  detector.advance();
  writes(detector, 3, 8);  // after the release: not handed on
  detector.acquire(7, 32);
  CHECK_FALSE(reads(detector, 32, 4));
  CHECK(reads(detector, 32, 8));
}

TEST_CASE("strong accesses do not race with each other, but with plain ones") {
  RaceDetector detector(64, 64);
  CHECK_FALSE(writes(detector, 0, 0, true));
  CHECK_FALSE(writes(detector, 1, 0, true));
  CHECK(reads(detector, 2, 0));
}

TEST_CASE("a new block has no past") {
  RaceDetector detector(64, 64);
  writes(detector, 0, 0);
  detector.release(7, 0);
  detector.reset();
  CHECK_FALSE(reads(detector, 1, 0));
  CHECK_FALSE(writes(detector, 2, 4));
  detector.acquire(7, 3);
  CHECK(reads(detector, 3, 4));
}
