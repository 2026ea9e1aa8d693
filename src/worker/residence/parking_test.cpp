#include "worker/residence/parking.h"

#include "worker/driver/context_limits.h"

#include <doctest/doctest.h>

using namespace gpupool::worker;

TEST_CASE("obstacles come and go, and the one that lasts longest is told first") {
  ParkObstacles obstacles;
  const auto stream = reinterpret_cast<CUstream>(0x10);
  CHECK(obstacles.first(true, false).empty());
  obstacles.capture_began(stream);
  obstacles.capture_began(stream);
  CHECK(obstacles.first(true, false) == "capture");
  obstacles.managed_loaded();
  CHECK(obstacles.first(true, false) == "managed");
  CHECK(obstacles.first(true, true) == "ipc");
  CHECK(obstacles.first(false, true) == "old-driver");
  obstacles.managed_unloaded();
  obstacles.capture_ended(stream);
  CHECK(obstacles.first(true, false).empty());
  obstacles.event_opened();
  CHECK(obstacles.first(true, false) == "ipc");
  obstacles.clear();
  CHECK(obstacles.first(true, false).empty());
}

TEST_CASE("the heap of kernels counts from what is usual, at its greatest, until the context goes") {
  MemoryAccount account(100);
  ContextLimits limits;
  const auto context = reinterpret_cast<CUcontext>(0x10);
  CHECK(limits.reserve(context, CU_LIMIT_MALLOC_HEAP_SIZE, 8, 58, account));
  CHECK(account.beside() == 50);
  CHECK(limits.reserve(context, CU_LIMIT_MALLOC_HEAP_SIZE, 58, 20, account));
  CHECK(account.beside() == 50);
  CHECK_FALSE(limits.reserve(context, CU_LIMIT_MALLOC_HEAP_SIZE, 20, 109, account));
  CHECK(limits.reserve(context, CU_LIMIT_MALLOC_HEAP_SIZE, 20, 68, account));
  limits.undo(context, CU_LIMIT_MALLOC_HEAP_SIZE);
  CHECK(account.beside() == 50);
  limits.release_context(context);
  CHECK(account.beside() == 0);
}
