// The devices that NVML shows, from nvmlInit to nvmlShutdown.
#pragma once

#include <nvml.h>

#include <array>
#include <string>

#include "base/mutex.h"
#include "profile/device_profile.h"

struct nvmlDevice_st {
  unsigned index;
};

namespace gpupool::nvml {

/// Process-wide, because NVML's interface is: nvmlInit is counted, handles are valid for the whole process.
class Inventory {
 public:
  static Inventory& instance();

  /// NVML_ERROR_DRIVER_NOT_LOADED where there is nothing to tell.
  nvmlReturn_t initialise();
  nvmlReturn_t shut_down();

  [[nodiscard]] bool initialised();
  [[nodiscard]] DeviceProfile profile();
  /// The device behind a handle; NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT.
  nvmlReturn_t find(nvmlDevice_t handle, DeviceDescription& device);
  nvmlReturn_t handle_of(std::size_t index, nvmlDevice_t* handle);

 private:
  static constexpr std::size_t max_devices = 64;

  Inventory();
  void refresh() REQUIRES(mutex_);

  Mutex mutex_;
  unsigned users_ GUARDED_BY(mutex_) = 0;
  DeviceProfile profile_ GUARDED_BY(mutex_);
  std::array<nvmlDevice_st, max_devices> handles_ GUARDED_BY(mutex_){};
};

/// `GPU-` and the 32 hex digits in the usual groups.
[[nodiscard]] std::string nvml_uuid(const DeviceDescription& device);

/// Copies `text` with its end into a buffer of `length`; NVML_ERROR_INSUFFICIENT_SIZE when it does not fit.
nvmlReturn_t copy_text(const std::string& text, char* buffer, unsigned length);

}  // namespace gpupool::nvml
