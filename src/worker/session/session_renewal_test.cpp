// A session is made new when another process takes it over.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "wire/handle.h"
#include "worker/device_time/device_work.h"
#include "worker/session/equipment.h"
#include "worker/session/session.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::Session;

namespace {

constexpr std::uint64_t arena = worker::SessionTestClient::arena;
constexpr std::uint64_t mib = 1 << 20;

std::unique_ptr<worker::WorkerState> new_state() {
  auto state = std::make_unique<worker::WorkerState>();
  state->devices.push_back({0, "01010101010101010101010101010101", 500, 64});
  state->memory.emplace_back(64 * mib);
  return state;
}

/// What a worker has around its session.
struct Around {
  std::unique_ptr<worker::WorkerState> state = new_state();
  worker::Equipment equipment{GPUPOOL_TEST_DRIVER, *state};
  worker::DeviceWork work{equipment.driver, *state, equipment.parking.residence, [] { return false; }};
  std::optional<Session> session{std::in_place, equipment, work};
};

bool driver_knows(const void* handle) {
  return worker::of_test_driver<bool(const void*)>("test_driver_knows")(handle);
}

}  // namespace

TEST_CASE("a session that ends gives back its memory and ends its objects; the addresses stay the worker's") {
  Around around;
  Session& first = *around.session;
  CHECK_FALSE(first.is_open());
  first.open({arena});
  REQUIRE(first.select(first.home()) == CUDA_SUCCESS);
  REQUIRE(around.equipment.arena(0)->map(arena, 4 * mib) == CUDA_SUCCESS);
  CHECK(around.state->memory[0].used() == 4 * mib);
  CUstream stream = nullptr;
  REQUIRE(first.api.cuStreamCreate_(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  const auto name = wire::Handle{wire::Kind::stream, 0, 1}.value();
  first.handles.bind(wire::Kind::stream, name, stream);
  CHECK(driver_knows(stream));

  around.session.reset();
  CHECK(around.state->memory[0].used() == 0);
  CHECK_FALSE(driver_knows(stream));
  REQUIRE(around.equipment.arena(0) != nullptr);
  CHECK(around.equipment.arena(0)->base() == arena);
}

TEST_CASE("a new session knows nothing of the one before") {
  Around around;
  around.session->open({arena});
  REQUIRE(around.session->select(around.session->home()) == CUDA_SUCCESS);
  const auto name = wire::Handle{wire::Kind::stream, 0, 1}.value();
  CUstream stream = nullptr;
  REQUIRE(around.session->api.cuStreamCreate_(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  around.session->handles.bind(wire::Kind::stream, name, stream);
  around.session->graphs.has_allocations = true;
  CHECK(around.session->obstacle_to_moving(true) == worker::MoveObstacle::graphs);

  Session& next = around.session.emplace(around.equipment, around.work);
  CHECK_FALSE(next.is_open());
  CHECK(next.contexts().empty());
  CHECK(next.current() == nullptr);
  next.open({arena + (std::uint64_t{1} << 44)});  // too late: the worker has its addresses
  CHECK(around.equipment.arena(0)->base() == arena);
  CHECK(next.contexts().size() == 1);
  CHECK(next.current() == nullptr);
  CHECK(next.handles.vacant(wire::Kind::stream, name));
  CHECK(next.obstacle_to_moving(true) == worker::MoveObstacle::none);
}

TEST_CASE("a session that ends gives back what its contexts took of the share") {
  Around around;
  around.state->memory.clear();
  around.state->memory.emplace_back(64 * mib, 16 * mib);
  around.session->open({arena});
  const auto name = wire::Handle{wire::Kind::context, 0, 5}.value();
  REQUIRE(around.session->shares.reserve(name, around.state->memory[0]));
  CHECK(around.state->memory[0].used() == 32 * mib);
  around.session.reset();
  CHECK(around.state->memory[0].used() == 16 * mib);
}
