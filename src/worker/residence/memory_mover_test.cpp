#include "worker/residence/memory_mover.h"

#include <doctest/doctest.h>

#include <thread>

using namespace gpupool::worker;
using namespace std::chrono_literals;

namespace {

/// Says of each call what the test wants, and is as strict about their order as a driver.
struct ScriptedDriver final : ProcessCheckpoint {
  struct Wishes {
    CUresult lock = CUDA_SUCCESS, save = CUDA_SUCCESS, restore = CUDA_SUCCESS, unlock = CUDA_SUCCESS;
    CUprocessState after_failure = CU_PROCESS_STATE_FAILED;
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    std::vector<CUcheckpointGpuPair> pairs;
  };
  explicit ScriptedDriver(Wishes& wishes) : wishes_(wishes) {}

  CUresult lock(unsigned) override {
    return go(CU_PROCESS_STATE_RUNNING, wishes_.lock, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
  }
  CUresult save() override {
    return go(CU_PROCESS_STATE_LOCKED, wishes_.save, CU_PROCESS_STATE_CHECKPOINTED, wishes_.after_failure);
  }
  CUresult restore(std::vector<CUcheckpointGpuPair> pairs) override {
    wishes_.pairs = std::move(pairs);
    return go(CU_PROCESS_STATE_CHECKPOINTED, wishes_.restore, CU_PROCESS_STATE_LOCKED, wishes_.after_failure);
  }
  CUresult unlock() override {
    return go(CU_PROCESS_STATE_LOCKED, wishes_.unlock, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
  }
  CUresult state(CUprocessState& out) override {
    out = wishes_.state;
    return CUDA_SUCCESS;
  }

 private:
  CUresult go(CUprocessState from, CUresult wish, CUprocessState good, CUprocessState bad) {
    if (wishes_.state != from) return CUDA_ERROR_ILLEGAL_STATE;
    wishes_.state = wish == CUDA_SUCCESS ? good : bad;
    return wish;
  }
  Wishes& wishes_;
};

struct Session {
  ScriptedDriver::Wishes driver;
  Residence residence;
  MemoryMover mover{std::make_unique<ScriptedDriver>(driver), residence};

  MoveResult park(const std::string& refusal = "") {
    return mover.park(5ms, [refusal] { return refusal; }, [] { return std::uint64_t{4096}; });
  }
  MoveResult resume() {
    return mover.resume({}, [] {});
  }
  bool open() {
    const Residence::Visit visit(&residence);
    return static_cast<bool>(visit);
  }
};

}  // namespace

TEST_CASE("to the host and back; each step may be asked for again") {
  Session session;
  for (int round = 0; round < 2; ++round) {
    CHECK(session.park().bytes == 4096);
    CHECK(session.mover.place().in_host());
    CHECK_FALSE(session.open());
    CHECK(session.park("ipc").refusal.empty());  // it is there already
    CHECK(session.resume().refusal.empty());
    CHECK_FALSE(session.mover.place().in_host());
    CHECK(session.mover.place().bytes() == 0);
    CHECK(session.open());
  }
}

TEST_CASE("what stands in the way leaves everything as it was") {
  Session session;
  SUBCASE("an obstacle") {
    CHECK(session.park("capture").refusal == "capture");
  }
  SUBCASE("work that does not end") {
    session.driver.lock = CUDA_ERROR_NOT_READY;
    CHECK(session.park().refusal == "busy");
  }
  SUBCASE("a call under way") {
    std::atomic<bool> inside{false}, done{false};
    std::thread call([&] {
      const Residence::Visit visit(&session.residence);
      inside = true;
      while (!done) std::this_thread::sleep_for(1ms);
    });
    while (!inside) std::this_thread::sleep_for(1ms);
    CHECK(session.park().refusal == "busy");
    done = true;
    call.join();
  }
  SUBCASE("a checkpoint that failed and left the process locked") {
    session.driver.save = CUDA_ERROR_OUT_OF_MEMORY;
    session.driver.after_failure = CU_PROCESS_STATE_LOCKED;
    CHECK(session.park().refusal == "failed why=out-of-memory");
  }
  CHECK(session.driver.state == CU_PROCESS_STATE_RUNNING);
  CHECK(session.mover.place().state() == MemoryPlace::State::resident);
  CHECK(session.open());
  session.driver = {};
  CHECK(session.park().refusal.empty());
}

TEST_CASE("a driver that has the calls and no support for them is known from then on") {
  Session session;
  CHECK(session.mover.able());
  session.driver.save = CUDA_ERROR_NOT_SUPPORTED;
  session.driver.after_failure = CU_PROCESS_STATE_LOCKED;
  CHECK(session.park().refusal == "old-driver");
  CHECK_FALSE(session.mover.able());
  CHECK(session.open());
}

TEST_CASE("without the calls nothing is tried") {
  Residence residence;
  MemoryMover mover(nullptr, residence);
  CHECK_FALSE(mover.able());
  CHECK(
      mover.park(5ms, [] { return std::string(); }, [] { return std::uint64_t{1}; }).refusal == "old-driver");
}

TEST_CASE("a failed restore leaves the memory in the host, and can be tried again") {
  Session session;
  REQUIRE(session.park().refusal.empty());
  session.driver.restore = CUDA_ERROR_OUT_OF_MEMORY;
  session.driver.after_failure = CU_PROCESS_STATE_CHECKPOINTED;
  const MoveResult failed = session.resume();
  CHECK(failed.refusal == "resume-failed why=out-of-memory");
  CHECK_FALSE(failed.lost);
  CHECK(session.mover.place().in_host());
  CHECK(session.mover.place().bytes() == 4096);
  CHECK_FALSE(session.open());
  session.driver.restore = CUDA_SUCCESS;
  CHECK(session.resume().refusal.empty());
  CHECK(session.open());
}

TEST_CASE("a process that the driver has given up is lost, and says so ever after") {
  Session session;
  SUBCASE("while parking") {
    session.driver.save = CUDA_ERROR_OUT_OF_MEMORY;
  }
  SUBCASE("while resuming") {
    REQUIRE(session.park().refusal.empty());
    session.driver.restore = CUDA_ERROR_OUT_OF_MEMORY;
  }
  const MoveResult lost = session.mover.place().in_host() ? session.resume() : session.park();
  CHECK(lost.lost);
  CHECK(lost.refusal == "failed why=out-of-memory");
  CHECK(session.mover.place().state() == MemoryPlace::State::lost);
  CHECK(session.park().refusal == "failed why=lost");
  CHECK(session.resume().refusal == "failed why=lost");
  CHECK_FALSE(session.open());
}

TEST_CASE("the steps of the place, and no others") {
  MemoryPlace place;
  CHECK_FALSE(place.begin_resuming());
  CHECK_FALSE(place.parked(1));
  CHECK_FALSE(place.resumed());
  CHECK_FALSE(place.stays());
  CHECK(place.begin_parking());
  CHECK_FALSE(place.begin_parking());
  CHECK_FALSE(place.in_host());
  CHECK(place.parked(7));
  CHECK(place.in_host());
  CHECK(place.begin_resuming());
  CHECK(place.in_host());
  CHECK(place.bytes() == 7);
  CHECK(place.stays());
  CHECK(place.state() == MemoryPlace::State::in_host);
}
