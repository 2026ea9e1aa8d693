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

TEST_CASE("joined pieces count what lies between them only since something was under way") {
  IntervalUnion busy;
  double total = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    total += busy.add(10.0 * i, 10.0 * i + 1);
    if (busy.many()) total += busy.join(5000);
  }
  total += busy.join(5000);
  CHECK(total == 1000 + 9 * 499);
  CHECK(busy.add(2, 9) == 0);  // long ago
  CHECK(busy.add(0, 10'000) == 9);
}

TEST_CASE("a long interval is charged whole, however many short ones it covers") {
  IntervalUnion busy;
  double total = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    total += busy.add(10.0 * i, 10.0 * i + 1);
    if (busy.many()) total += busy.join(0);
  }
  CHECK(total + busy.add(0, 10'000) == 10'000);
}
