#include "wire/patience.h"

#include <doctest/doctest.h>

using namespace gpupool::wire;

namespace {

int spins(Patience& patience, int waits) {
  int spun = 0;
  for (int n = 0; n < waits; ++n) {
    bool looked = false;
    patience.spin([&] {
      looked = true;
      return false;
    });
    spun += looked ? 1 : 0;
  }
  return spun;
}

}  // namespace

TEST_CASE("spinning in vain ends soon, and is tried again ever more seldom") {
  Patience patience(false);
  CHECK(spins(patience, 100) < 8);
  CHECK(spins(patience, 10'000) < 20);
}

TEST_CASE("a success brings spinning back") {
  Patience patience(false);
  spins(patience, 1000);
  int waits = 0;
  while (!patience.spin([] { return true; })) ++waits;
  CHECK(waits <= 1024);
  for (int n = 0; n < 100; ++n) CHECK(patience.spin([] { return true; }));
}

TEST_CASE("with one core nobody spins") {
  Patience patience(true);
  CHECK(spins(patience, 10) == 0);
}
