#include "worker/image/device_pairs.h"

#include <doctest/doctest.h>

using gpupool::worker::device_pairs;
using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("a device that takes another's place gives that one its own") {
  CHECK(device_pairs({"a", "b", "c"}, {{0, "c"}}) == Pairs{{"a", "c"}, {"b", "b"}, {"c", "a"}});
}

TEST_CASE("two devices change places, or move on by one") {
  CHECK(device_pairs({"a", "b"}, {{0, "b"}, {1, "a"}}) == Pairs{{"a", "b"}, {"b", "a"}});
  CHECK(device_pairs({"a", "b", "c"}, {{0, "b"}, {1, "c"}}) == Pairs{{"a", "b"}, {"b", "c"}, {"c", "a"}});
}

TEST_CASE("nothing is to be told of devices that stay") {
  CHECK(device_pairs({"a", "b"}, {}) == Pairs{});
  CHECK(device_pairs({"a", "b"}, {{1, "b"}}) == Pairs{});
}

TEST_CASE("a device that is not there, or wished for twice, is refused") {
  CHECK_FALSE(device_pairs({"a", "b"}, {{0, "x"}}));
  CHECK_FALSE(device_pairs({"a", "b"}, {{2, "a"}}));
  CHECK_FALSE(device_pairs({"a", "b", "c"}, {{0, "c"}, {1, "c"}}));
}
