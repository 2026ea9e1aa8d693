#include "softgpu/driver/device/driver.h"

#include <pthread.h>

#include <cstdio>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/device/memory_pool.h"

namespace softgpu::driver {

Driver& Driver::get() {
  static Driver* const driver = new Driver;
  return *driver;
}

Driver::Driver() : settings(Settings::from_environment()) {}

void Driver::initialise() {
  const gpupool::MutexLock lock(setup_mutex_);
  require(!forked_, CUDA_ERROR_NOT_INITIALIZED);
  if (initialised_) return;
  require(!settings.visible.empty(), CUDA_ERROR_NO_DEVICE);
  if (!settings.execute || !driver_identity.executes) {
    std::fprintf(stderr, "%s: %skernels are not executed\n", driver_identity.log_name,
                 driver_identity.executes ? "GPUPOOL_SOFTGPU_EXECUTE=0: " : "");
  }
  for (const int card : settings.visible) {
    devices_.push_back(std::make_unique<Device>(static_cast<int>(devices_.size()), card, settings));
    registry<MemoryPool>().add<CUmemoryPool>(devices_.back()->shared_default_pool());
  }
  // A forked child has none of the threads and must not use its parent's device; CUDA answers NOT_INITIALIZED
  // there.
  pthread_atfork(nullptr, nullptr, [] { Driver::get().forked_ = true; });
  initialised_ = true;
}

Device& Driver::device(int ordinal) const {
  require(ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices_.size(), CUDA_ERROR_INVALID_DEVICE);
  return *devices_[static_cast<std::size_t>(ordinal)];
}

Device& Driver::device_on_card(int card) const {
  for (const auto& device : devices_) {
    if (device->card() == card) return *device;
  }
  fail(CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace softgpu::driver
