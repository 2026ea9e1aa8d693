#include "worker/lease/lease_end.h"

#include <doctest/doctest.h>

using namespace gpupool::worker;
using Next = LeaseEnd::Next;

namespace {

constexpr LeaseEndTimers timers{20, 40};

}  // namespace

TEST_CASE("a lease ends when its work is done") {
  LeaseEnd end(7, true, 100, timers);
  CHECK(end.look(false, true, 100) == Next::wait);
  CHECK(end.look(true, false, 105) == Next::shut);
  end.shut();
  CHECK(end.look(true, false, 105) == Next::over);
  CHECK(end.epoch() == 7);
}

TEST_CASE("a client that goes on posting does not keep the gate open") {
  LeaseEnd end(7, true, 100, timers);
  CHECK(end.look(false, false, 119) == Next::wait);
  CHECK(end.look(false, false, 120) == Next::shut);
  end.shut();
  CHECK(end.look(false, false, 120) == Next::over);
}

TEST_CASE("what computes has the rest of the grace, and is stopped then") {
  LeaseEnd end(7, true, 100, timers);
  CHECK(end.look(false, true, 120) == Next::shut);
  end.shut();
  CHECK(end.look(false, true, 139) == Next::wait);
  CHECK(end.look(false, true, 140) == Next::stop);
  CHECK(end.look(true, false, 140) == Next::over);
}

TEST_CASE("a later lease that is revoked meanwhile shuts the gate, and ends with this one") {
  LeaseEnd end(7, true, 100, timers);
  CHECK(end.barred() == 7);
  end.bars(9);
  end.bars(8);
  CHECK(end.epoch() == 7);
  CHECK(end.barred() == 9);
  CHECK_FALSE(end.draining());
  CHECK(end.look(false, true, 101) == Next::wait);
  CHECK(end.look(false, false, 101) == Next::over);
}

TEST_CASE("after a fence the gate is shut already") {
  const LeaseEnd end(7, false, 100, timers);
  CHECK_FALSE(end.draining());
  CHECK(end.look(false, true, 101) == Next::wait);
  CHECK(end.look(false, false, 102) == Next::over);
  CHECK(end.look(false, true, 140) == Next::stop);
}

TEST_CASE("work that begins after the end was over has what is left of the grace") {
  const LeaseEnd later(7, false, 1000, timers, 30);
  CHECK(later.look(false, true, 1009) == Next::wait);
  CHECK(later.look(false, false, 1009) == Next::over);
  CHECK(later.look(false, true, 1010) == Next::stop);
  const LeaseEnd too_late(7, false, 2000, timers, 40);
  CHECK(too_late.look(false, true, 2000) == Next::stop);
}
