#include "worker/lease/lease_gate.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

using namespace gpupool::worker;

constexpr std::int64_t second = 1'000'000'000;

TEST_CASE("before the first lease nothing is admitted") {
  const LeaseGate gate;
  CHECK(gate.admits(0, 0) == Admission::not_attached);
  CHECK(gate.admits(1, 0) == Admission::not_attached);
  CHECK(gate.view(0).state == LeaseState::parked);
}

TEST_CASE("a lease admits its own epoch until its deadline, exclusive") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 0) == Admission::ok);
  CHECK(gate.admits(7, 25 * second - 1) == Admission::ok);
  CHECK(gate.admits(7, 25 * second) == Admission::fenced);
  CHECK(gate.view(25 * second).state == LeaseState::fenced);
}

TEST_CASE("calls of an earlier epoch are past, calls of a later one are not attached yet") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.admits(6, 0) == Admission::past_epoch);
  CHECK(gate.admits(8, 0) == Admission::not_attached);
  CHECK(gate.admits(6, 100 * second) == Admission::past_epoch);
}

TEST_CASE("a renewal moves the deadline forward and never back") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.grant(7, 30 * second, 5 * second) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 29 * second) == Admission::ok);
  CHECK(gate.grant(7, 10 * second, 6 * second) == LeaseAnswer::ok);  // late on the way, not an order to fence
  CHECK(gate.admits(7, 29 * second) == Admission::ok);
}

TEST_CASE("a renewal after the deadline does not resurrect the lease, even if nobody called in between") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.grant(7, 60 * second, 25 * second) == LeaseAnswer::fenced);
  CHECK(gate.admits(7, 26 * second) == Admission::fenced);
  SUBCASE("a higher epoch opens the gate again") {
    CHECK(gate.grant(8, 60 * second, 26 * second) == LeaseAnswer::ok);
    CHECK(gate.admits(8, 27 * second) == Admission::ok);
    CHECK(gate.admits(7, 27 * second) == Admission::past_epoch);
  }
}

TEST_CASE("a lease that nobody was served under may be renewed after its deadline, once") {
  LeaseGate gate;
  REQUIRE(gate.begin(7, 25 * second) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 30 * second) == Admission::fenced);
  CHECK(gate.view(30 * second).state == LeaseState::fenced);
  CHECK(gate.view(30 * second).unserved);
  CHECK(gate.grant(7, 28 * second, 30 * second) == LeaseAnswer::ok);  // that is over, too
  CHECK(gate.view(30 * second).unserved);
  CHECK(gate.grant(7, 60 * second, 31 * second) == LeaseAnswer::ok);
  CHECK_FALSE(gate.view(31 * second).unserved);
  CHECK(gate.admits(7, 59 * second) == Admission::ok);
  CHECK(gate.grant(7, 99 * second, 60 * second) == LeaseAnswer::fenced);
}

TEST_CASE("a first lease under which a call was admitted is fenced for good") {
  LeaseGate gate;
  REQUIRE(gate.begin(7, 25 * second) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 24 * second) == Admission::ok);
  CHECK(gate.grant(7, 60 * second, 25 * second) == LeaseAnswer::fenced);
}

TEST_CASE("a first lease that was revoked is over, served or not") {
  LeaseGate gate;
  CHECK(gate.begin(0, 25 * second) == LeaseAnswer::past_epoch);
  REQUIRE(gate.begin(7, 25 * second) == LeaseAnswer::ok);
  CHECK(gate.revoke(7) == LeaseAnswer::ok);
  CHECK(gate.grant(7, 60 * second, 30 * second) == LeaseAnswer::past_epoch);
}

TEST_CASE("a lower epoch is refused and changes nothing") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.grant(6, 99 * second, 0) == LeaseAnswer::past_epoch);
  CHECK(gate.revoke(6) == LeaseAnswer::past_epoch);
  CHECK(gate.admits(7, second) == Admission::ok);
  CHECK(gate.view(0).deadline_ns == 25 * second);
}

TEST_CASE("epoch 0 is no lease") {
  LeaseGate gate;
  CHECK(gate.grant(0, 25 * second, 0) == LeaseAnswer::past_epoch);
}

TEST_CASE("revocation parks, is idempotent, and is final for its epoch") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.revoke(7) == LeaseAnswer::ok);
  CHECK(gate.revoke(7) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 0) == Admission::past_epoch);
  CHECK(gate.view(0).state == LeaseState::parked);
  CHECK(gate.grant(7, 99 * second, 0) == LeaseAnswer::past_epoch);
  CHECK(gate.grant(8, 99 * second, 0) == LeaseAnswer::ok);
}

TEST_CASE("revoking an epoch that was never granted bars it") {
  LeaseGate gate;
  REQUIRE(gate.grant(7, 25 * second, 0) == LeaseAnswer::ok);
  CHECK(gate.revoke(9) == LeaseAnswer::ok);
  CHECK(gate.admits(7, 0) == Admission::past_epoch);
  CHECK(gate.grant(9, 99 * second, 0) == LeaseAnswer::past_epoch);
  CHECK(gate.grant(8, 99 * second, 0) == LeaseAnswer::past_epoch);
}

TEST_CASE("a reader never sees the old epoch with the new deadline") {
  // Odd epochs are granted with a deadline in the past, even ones with one in the future: at time 1 an odd
  // epoch may be fenced, past or unknown, but never admitted.
  LeaseGate gate;
  std::atomic<bool> done = false;
  std::atomic<int> violations = 0;
  std::thread reader([&] {
    while (!done) {
      const LeaseGate::View view = gate.view(1);
      const bool odd = view.epoch % 2 == 1;
      if (odd && view.state == LeaseState::attached) ++violations;
      if (odd && gate.admits(view.epoch, 1) == Admission::ok) ++violations;
    }
  });
  for (std::uint32_t epoch = 1; epoch < 200'000; ++epoch) {
    (void)gate.grant(epoch, epoch % 2 == 1 ? 0 : 100, 1);
  }
  done = true;
  reader.join();
  CHECK(violations == 0);
}
