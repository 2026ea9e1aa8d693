#include "worker/device_time/interval_union.h"

#include <doctest/doctest.h>

#include <limits>

using gpupool::worker::IntervalUnion;

TEST_CASE("intervals apart add up, overlapping ones count once") {
  IntervalUnion busy;
  CHECK(busy.add(0, 10) == 10);
  CHECK(busy.add(20, 30) == 10);
  CHECK(busy.add(5, 25) == 10);
  CHECK(busy.add(0, 30) == 0);
}

TEST_CASE("order does not matter: a long interval after a short one inside it") {
  IntervalUnion busy;
  CHECK(busy.add(5, 6) == 1);
  CHECK(busy.add(0, 10) == 9);
}

TEST_CASE("touching intervals are joined, not counted twice") {
  IntervalUnion busy;
  CHECK(busy.add(0, 1) == 1);
  CHECK(busy.add(1, 2) == 1);
  CHECK(busy.add(0, 2) == 0);
}

TEST_CASE("empty, reversed and not-a-number intervals add nothing") {
  IntervalUnion busy;
  CHECK(busy.add(3, 3) == 0);
  CHECK(busy.add(4, 3) == 0);
  CHECK(busy.add(std::numeric_limits<double>::quiet_NaN(), 3) == 0);
}

TEST_CASE("beyond the bound the earliest pieces are joined: less is charged, never more") {
  IntervalUnion busy;
  double total = 0;
  for (unsigned i = 0; i < 1000; ++i) total += busy.add(10.0 * i, 10.0 * i + 1);
  CHECK(total == 1000);
  CHECK(busy.add(2, 9) == 0);  // long ago, in a gap that was closed
  CHECK(busy.add(9992, 9993) == 1);
}
