#include "worker/residence/residence.h"

#include <doctest/doctest.h>

#include <thread>

using gpupool::worker::Residence;
using namespace std::chrono_literals;

TEST_CASE("memory stays where it is while somebody visits it, and nobody visits it while it is away") {
  Residence residence;
  {
    const Residence::Visit visit(&residence);
    CHECK(visit);
    bool closed = true;
    std::thread([&] { closed = residence.close(5ms); }).join();
    CHECK_FALSE(closed);
    const Residence::Visit again(&residence);
    CHECK(again);
  }
  REQUIRE(residence.close(5ms));
  const Residence::Visit refused(&residence);
  CHECK_FALSE(refused);
  residence.open();
  const Residence::Visit granted(&residence);
  CHECK(granted);
}

TEST_CASE("a visit inside a visit succeeds while the first keeps the mover waiting") {
  Residence residence;
  std::thread mover;
  bool closed = false;
  {
    const Residence::Visit outer(&residence);
    REQUIRE(outer);
    mover = std::thread([&] { closed = residence.close(60s); });
    std::this_thread::sleep_for(20ms);
    const Residence::Visit inner(&residence);
    CHECK(inner);
  }
  mover.join();
  CHECK(closed);
}

TEST_CASE("who waits goes on when the memory is back, or gives up") {
  Residence residence;
  REQUIRE(residence.close(5ms));
  bool came_in = false;
  std::thread waiting([&] {
    Residence::Visit visit(&residence);
    came_in = visit.wait([] { return false; });
  });
  Residence::Visit visit(&residence);
  int asked = 0;
  CHECK_FALSE(visit.wait([&] { return ++asked == 2; }));
  CHECK_FALSE(came_in);
  residence.open();
  waiting.join();
  CHECK(came_in);
}

TEST_CASE("a session that knows no residence has its memory at all times") {
  const Residence::Visit visit(nullptr);
  CHECK(visit);
}
