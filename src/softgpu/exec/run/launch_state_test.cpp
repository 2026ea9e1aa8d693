// What one launch may take of the host.
#include "softgpu/exec/run/launch_state.h"

#include <doctest/doctest.h>

#include <new>

namespace softgpu {
namespace {

TEST_CASE("the registers of a launch have a limit, which is told") {
  KernelInfo info;
  info.name = "wide";
  LaunchState launch;
  launch.info = &info;
  for (int block = 0; block < 4; ++block) launch.take_registers(most_register_bytes / 4);
  CHECK_FALSE(launch.stop);
  CHECK_THROWS_AS(launch.take_registers(1), std::bad_alloc);
  CHECK(launch.stop);
  const gpupool::MutexLock lock(launch.mutex);
  CHECK(launch.fault == Fault::launch_out_of_resources);
  CHECK(launch.detail == "kernel wide: the registers of its threads take more than 4 GiB of host memory");
}

}  // namespace
}  // namespace softgpu
