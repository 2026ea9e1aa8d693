// What a GPU's driver cannot do: it tells what runs, and all work of this process stops between two
// instructions, and goes on later.
#include "softgpu/driver/software/stand_still.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/device/published_usage.h"
#include "softgpu/driver/software/running_kernels.h"
#include "softgpu/driver/stream/event.h"
#include "softgpu/exec/run/standstill.h"

extern "C" int gpupool_softgpu_stand_still(int on) {
  auto& standstill = softgpu::Standstill::of_process();
  try {
    if (on == 0) {
      softgpu::driver::PublishedUsage::get().stand_still(false);
      standstill.end();
    } else {
      standstill.begin();
      softgpu::driver::PublishedUsage::get().stand_still(true);
    }
  } catch (const std::exception&) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_SUCCESS;
}

extern "C" std::int64_t gpupool_softgpu_device_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(softgpu::device_now().time_since_epoch())
      .count();
}

extern "C" int gpupool_softgpu_event_ns(CUevent event, std::int64_t* nanoseconds) {
  return softgpu::driver::entry([&]() -> CUresult {
    softgpu::driver::require(nanoseconds != nullptr);
    const auto mark = softgpu::driver::registry<softgpu::driver::Event>().get(event)->mark();
    if (!mark || !mark->done()) return CUDA_ERROR_NOT_READY;
    *nanoseconds =
        std::chrono::duration_cast<std::chrono::nanoseconds>(mark->finished().time_since_epoch()).count();
    return CUDA_SUCCESS;
  });
}

extern "C" int gpupool_softgpu_running(char* name, std::size_t size, std::int64_t* nanoseconds) {
  if (name == nullptr || size == 0 || nanoseconds == nullptr) return 0;
  try {
    const auto kernel = softgpu::driver::RunningKernels::get().first();
    if (!kernel) return 0;
    const std::size_t length = std::min(kernel->name.size(), size - 1);
    std::memcpy(name, kernel->name.data(), length);
    name[length] = '\0';
    *nanoseconds =
        std::chrono::duration_cast<std::chrono::nanoseconds>(softgpu::device_now() - kernel->since).count();
    return 1;
  } catch (const std::exception&) {
    return 0;
  }
}
