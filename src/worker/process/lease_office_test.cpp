#include "worker/process/lease_office.h"

#include <doctest/doctest.h>

using namespace gpupool::worker;

namespace {

constexpr std::uint64_t mib = 1U << 20;

struct Worker {
  WorkerState state;
  Worker() {
    for (int i = 0; i < 2; ++i) {
      state.devices.push_back({i, std::string(32, 'a'), 200, 1000});
      state.memory.emplace_back(1000 * mib);
      state.milli.emplace_back(200U);
    }
    (void)state.gate.grant(7, 100, 0);
  }
};

}  // namespace

TEST_CASE("a new epoch with other shares takes effect as a whole") {
  Worker worker;
  CHECK(apply_lease(worker.state, {8, 200, {{0, 500, 4000}, {1, 300, 2000}}}, 1) == "ok epoch=8");
  CHECK(worker.state.memory[0].limit() == 4000 * mib);
  CHECK(worker.state.memory[1].limit() == 2000 * mib);
  CHECK(worker.state.milli[0] == 500);
  CHECK(worker.state.gate.admits(8, 150) == Admission::ok);
}

TEST_CASE("a renewal without shares leaves the limits alone") {
  Worker worker;
  CHECK(apply_lease(worker.state, {7, 200, {}}, 1) == "ok epoch=7");
  CHECK(worker.state.memory[0].limit() == 1000 * mib);
  CHECK(worker.state.gate.admits(7, 150) == Admission::ok);
}

TEST_CASE("shrinking below what is used is refused with the figure, rounded up, and nothing changes") {
  Worker worker;
  REQUIRE(worker.state.memory[1].reserve(600 * mib + 1));
  CHECK(apply_lease(worker.state, {8, 200, {{0, 500, 4000}, {1, 100, 600}}}, 1) ==
        "refused epoch=8 reason=in-use used_mib=601");
  CHECK(worker.state.memory[0].limit() == 1000 * mib);
  CHECK(worker.state.memory[1].limit() == 1000 * mib);
  CHECK(worker.state.milli[0] == 200);
  CHECK(worker.state.gate.view(1).epoch == 7);
}

TEST_CASE("a past epoch or a late renewal is refused before any limit moves") {
  Worker worker;
  CHECK(apply_lease(worker.state, {6, 200, {{0, 500, 4000}}}, 1) == "refused epoch=6 reason=past-epoch");
  CHECK(apply_lease(worker.state, {7, 200, {{0, 500, 4000}}}, 100) == "refused epoch=7 reason=fenced");
  CHECK(worker.state.memory[0].limit() == 1000 * mib);
  CHECK(apply_lease(worker.state, {8, 300, {{0, 500, 4000}}}, 100) == "ok epoch=8");
}

TEST_CASE("a share of a device that the session does not have is refused") {
  Worker worker;
  CHECK(apply_lease(worker.state, {8, 200, {{2, 500, 4000}}}, 1) == "refused epoch=8 reason=bad-share");
}

TEST_CASE("a revocation shuts the gate, and again is no error") {
  Worker worker;
  CHECK(apply_revoke(worker.state, {7}) == "ok epoch=7");
  CHECK(worker.state.gate.admits(7, 1) == Admission::past_epoch);
  SUBCASE("again") {
    CHECK(apply_revoke(worker.state, {7}) == "ok epoch=7");
  }
  SUBCASE("the epoch does not come back") {
    CHECK(apply_lease(worker.state, {7, 200, {}}, 1) == "refused epoch=7 reason=past-epoch");
  }
}

TEST_CASE("a past epoch is not revoked") {
  Worker worker;
  CHECK(apply_revoke(worker.state, {6}) == "refused epoch=6 reason=past-epoch");
  CHECK(worker.state.gate.admits(7, 1) == Admission::ok);
}

TEST_CASE("memory is not brought back for a lease that would be refused") {
  Worker worker;
  REQUIRE(worker.state.memory[1].reserve(600 * mib + 1));
  CHECK(foresee_refusal(worker.state, {6, 200, {}}, 1) == "refused epoch=6 reason=past-epoch");
  CHECK(foresee_refusal(worker.state, {8, 200, {{1, 100, 600}}}, 1) ==
        "refused epoch=8 reason=in-use used_mib=601");
  CHECK(foresee_refusal(worker.state, {8, 200, {{1, 100, 601}}}, 1) == std::nullopt);
  CHECK(worker.state.memory[1].limit() == 1000 * mib);
}

TEST_CASE(
    "a lease whose deadline went by while memory came back is not granted, and its epoch is not used up") {
  Worker worker;
  (void)worker.state.gate.revoke(7);
  const LeaseCommand command{8, 200, {}};
  CHECK(conclude_lease(worker.state, command, {"resume-failed why=out-of-memory"}, 100) ==
        "refused epoch=8 reason=resume-failed why=out-of-memory");
  CHECK(conclude_lease(worker.state, command, {}, 200) == "refused epoch=8 reason=late");
  CHECK(worker.state.gate.admits(8, 100) == Admission::not_attached);
  CHECK(conclude_lease(worker.state, {8, 300, {}}, {}, 200) == "ok epoch=8");
}

TEST_CASE("other devices than before are told apart from the same ones") {
  Worker worker;
  const std::string same(32, 'a'), other(32, 'b');
  CHECK(changes_devices(worker.state, {8, 200, {}, {}}) == false);
  CHECK(changes_devices(worker.state, {8, 200, {}, {{1, same}}}) == false);
  CHECK(changes_devices(worker.state, {8, 200, {}, {{0, same}, {1, other}}}) == true);
  CHECK(changes_devices(worker.state, {8, 200, {}, {{2, same}}}) == std::nullopt);
}

TEST_CASE("memory is moved away only without a lease in force") {
  Worker worker;
  CHECK(foresee_park_refusal(worker.state, {7}, 1) == "refused epoch=7 reason=attached");
  CHECK(foresee_park_refusal(worker.state, {7}, 100) == std::nullopt);  // fenced
  (void)worker.state.gate.revoke(9);
  CHECK(foresee_park_refusal(worker.state, {8}, 1) == "refused epoch=8 reason=past-epoch");
  CHECK(foresee_park_refusal(worker.state, {9}, 1) == std::nullopt);
  CHECK(conclude_park({9}, {"", 4096}) == "ok epoch=9 bytes=4096");
  CHECK(conclude_park({9}, {"ipc"}) == "refused epoch=9 reason=ipc");
  CHECK(conclude_export(worker.state, {"", 4096, 3}, 1) == "ok epoch=9 bytes=4096 chunks=3");
}

TEST_CASE("stats show the memory of each device and the state of the lease") {
  Worker worker;
  REQUIRE(worker.state.memory[1].reserve(42));
  const std::string line = stats_now(worker.state, {}, true, 100);
  CHECK(line.starts_with("stats epoch=7 state=fenced client=1 "));
  CHECK(line.find(" mem=0:0:0,1:42:42 ") != std::string::npos);
}

TEST_CASE("only shares that become smaller are wished for, without what the context takes") {
  Worker worker;
  worker.state.memory.emplace_back(1000 * mib, 300 * mib);
  const auto wishes =
      shrunk_shares(worker.state, {7, 200, {{0, 200, 1000}, {1, 200, 2000}, {2, 200, 800}, {9, 1, 1}}});
  REQUIRE(wishes.size() == 1);
  CHECK(wishes[0].ordinal == 2);
  CHECK(wishes[0].bytes == 500 * mib);
}

TEST_CASE("who is asked to give memory back is refused for everything but what it uses") {
  Worker worker;
  REQUIRE(worker.state.memory[0].reserve(900 * mib));
  CHECK(foresee_refusal(worker.state, {7, 200, {{0, 200, 500}}}, 1) ==
        "refused epoch=7 reason=in-use used_mib=900");
  CHECK_FALSE(foresee_gate_refusal(worker.state, {7, 200, {{0, 200, 500}}}, 1));
  CHECK(foresee_gate_refusal(worker.state, {6, 200, {{0, 200, 500}}}, 1) ==
        "refused epoch=6 reason=past-epoch");
  CHECK(foresee_gate_refusal(worker.state, {7, 200, {{5, 200, 500}}}, 1) ==
        "refused epoch=7 reason=bad-share");
}

TEST_CASE("a share that MPS keeps to stays as large as it was; its memory need not") {
  Worker worker;
  worker.state.mps = Mps::partition;
  CHECK(apply_lease(worker.state, {7, 200, {{0, 300, 1000}}}, 1) == "refused epoch=7 reason=mps-share");
  CHECK(worker.state.milli[0] == 200);
  CHECK(apply_lease(worker.state, {7, 200, {{0, 200, 3000}}}, 1) == "ok epoch=7");
  CHECK(apply_lease(worker.state, {7, 300, {}}, 1) == "ok epoch=7");
  worker.state.mps = Mps::beside;
  CHECK(apply_lease(worker.state, {7, 200, {{0, 300, 1000}}}, 1) == "ok epoch=7");
}
