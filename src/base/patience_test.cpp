#include "base/patience.h"

#include <doctest/doctest.h>

using gpupool::Patience;

namespace {

constexpr std::chrono::microseconds longest{20};

// How often `patience` looks in so many waits that are in vain, beyond once for each.
int looks(Patience& patience, int waits) {
  int looked = -waits;
  for (int n = 0; n < waits; ++n) {
    CHECK_UNARY(!patience.spin([&] {
      ++looked;
      return false;
    }));
  }
  return looked;
}

// Waits among so many in which it looked more than once.
int spins(Patience& patience, int waits) {
  int spun = 0;
  for (int n = 0; n < waits; ++n) spun += looks(patience, 1) > 0 ? 1 : 0;
  return spun;
}

auto comes_soon() {
  return [looked = 0]() mutable { return ++looked > 3; };
}

}  // namespace

TEST_CASE("spinning in vain ends soon, and is tried again ever more seldom") {
  Patience patience(longest);
  CHECK(spins(patience, 100) < 8);
  CHECK(spins(patience, 10'000) < 20);
}

TEST_CASE("a success brings spinning back") {
  Patience patience(longest);
  spins(patience, 1000);
  int waits = 0;
  while (!patience.spin(comes_soon())) ++waits;
  CHECK(waits > 1);
  CHECK(waits <= 1024);
  for (int n = 0; n < 100; ++n) CHECK(patience.spin(comes_soon()));
}

TEST_CASE("what is ready is seen also by one that rests") {
  Patience patience(longest);
  spins(patience, 100);
  CHECK(patience.spin([] { return true; }));
  CHECK(!patience.spin(comes_soon()));
}

TEST_CASE("with one core nobody spins, whenever a thread came to have one only") {
  // Long, or a busy machine might let it pass before the clock is asked.
  Patience patience(std::chrono::milliseconds(200));
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) > 1) CHECK(looks(patience, 1) > Patience::looks);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(looks(patience, 1) == Patience::looks);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}
