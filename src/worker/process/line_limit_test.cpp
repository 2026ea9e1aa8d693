#include "worker/process/line_limit.h"

#include <doctest/doctest.h>

using gpupool::worker::LineLimit;

namespace {

constexpr std::int64_t began_ns = 5'000'000'000;

}  // namespace

TEST_CASE("one line a second is written, and the next one tells how many were not") {
  LineLimit limit;
  CHECK(limit.admit(began_ns) == 0);
  for (int n = 0; n < 1000; ++n) CHECK(!limit.admit(began_ns + n));
  CHECK(!limit.admit(began_ns + LineLimit::interval_ns - 1));
  CHECK(limit.admit(began_ns + LineLimit::interval_ns) == 1001);
  CHECK(!limit.admit(began_ns + LineLimit::interval_ns + 1));
}

TEST_CASE("lines that are seldom are all written, and nothing was left out") {
  LineLimit limit;
  for (int n = 0; n < 10; ++n) CHECK(limit.admit(began_ns + n * LineLimit::interval_ns) == 0);
}
