#include "worker/objects/device_resources.h"

#include <doctest/doctest.h>

#include <cstring>

using gpupool::worker::DeviceResources;

namespace {

CUdevResource processors(unsigned count) {
  CUdevResource made{};
  made.type = CU_DEV_RESOURCE_TYPE_SM;
  made.sm.smCount = count;
  std::memset(made._internal_padding, 0x5a, sizeof(made._internal_padding));
  return made;
}

}  // namespace

TEST_CASE("the driver's bytes stay with the worker and come back with the resource") {
  DeviceResources resources;
  CUdevResource shown = processors(8);
  REQUIRE(resources.publish(shown));
  CHECK(shown.sm.smCount == 8);
  CHECK(shown._internal_padding[sizeof(std::uint64_t)] == 0);
  REQUIRE(resources.restore(shown));
  CHECK(std::memcmp(
            &shown,
            [] {
              static CUdevResource r;
              return &(r = processors(8));
            }(),
            sizeof(shown)) == 0);
}

TEST_CASE("a made-up resource is refused, and a changed count is not believed") {
  DeviceResources resources;
  CUdevResource shown = processors(8), invented = processors(4);
  CHECK_FALSE(resources.restore(invented));
  REQUIRE(resources.publish(shown));
  shown.sm.smCount = 4000;
  REQUIRE(resources.restore(shown));
  CHECK(shown.sm.smCount == 8);
  REQUIRE(resources.publish(shown));
  shown.type = CU_DEV_RESOURCE_TYPE_WORKQUEUE;
  CHECK_FALSE(resources.restore(shown));
}

TEST_CASE("asking again for the same resource takes no more room") {
  DeviceResources resources;
  for (std::size_t n = 0; n < 2 * DeviceResources::most; ++n) {
    CUdevResource shown = processors(8);
    REQUIRE(resources.publish(shown));
  }
}
