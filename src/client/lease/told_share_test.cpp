#include "client/lease/told_share.h"

#include <doctest/doctest.h>

using namespace gpupool::client;

TEST_CASE("what is told is taken over once") {
  ToldShare share(100);
  CHECK_FALSE(share.take_changes());
  share.set_limit(80);
  share.set_beside(7);
  const auto now = share.take_changes();
  REQUIRE(now);
  CHECK(now->limit == 80);
  CHECK(now->beside == 7);
  CHECK_FALSE(share.take_changes());
}

TEST_CASE("a wish changes the share when it is granted, and not else") {
  ToldShare share(100);
  share.set_wish({50, 1});
  REQUIRE(share.wish());
  share.settle(*share.wish(), false);
  CHECK_FALSE(share.wish());
  CHECK_FALSE(share.take_changes());
  share.set_wish({50, 2});
  share.settle(*share.wish(), true);
  CHECK(share.take_changes()->limit == 50);
}

TEST_CASE("what was decided meanwhile stands, whatever becomes of the wish") {
  ToldShare share(100);
  share.set_wish({50, 1});
  const auto wish = *share.wish();
  share.set_limit(100);  // the worker no longer waits
  share.settle(wish, true);
  CHECK(share.take_changes()->limit == 100);
  share.set_wish({50, 2});
  const auto second = *share.wish();
  share.set_wish({30, 3});
  share.settle(second, true);
  REQUIRE(share.wish());
  CHECK(share.wish()->number == 3);
  CHECK_FALSE(share.take_changes());
}

TEST_CASE("what the worker had no room for is taken once, and not when there was room after all") {
  ToldShare share(100);
  CHECK_FALSE(share.take_refusal());
  share.set_refusal(60);
  CHECK(share.take_refusal() == 60);
  CHECK_FALSE(share.take_refusal());

  CHECK(share.set_beside(10) == 10);
  share.set_refusal(60);
  CHECK(share.set_beside(40) == 30);
  CHECK(share.set_beside(5) == 0);
  CHECK(share.set_beside(65) == 60);  // loaded again, once there was room
  CHECK_FALSE(share.take_refusal());
}
