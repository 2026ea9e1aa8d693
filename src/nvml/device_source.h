// Where NVML's facts come from: a share of a pool (share_source.cpp), or the software GPUs of this machine
// (nvml/software_source.cpp). One of them is linked into each library.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profile/device_profile.h"

namespace gpupool::nvml::source {

/// Whether there is anything to tell; without, nvmlInit says that no driver is loaded.
[[nodiscard]] bool present();

/// The devices as they are now; nothing when what was known before still holds.
[[nodiscard]] std::optional<DeviceProfile> devices();

/// Bytes in use of a device.
[[nodiscard]] std::uint64_t used_memory(unsigned index);

/// Percent of the last second or so in which a device worked; nothing when it is not known.
[[nodiscard]] std::optional<unsigned> utilisation(unsigned index);

struct ProcessUse {
  unsigned pid = 0;
  std::uint64_t memory = 0;             ///< bytes
  std::optional<unsigned> utilisation;  ///< percent
};

/// The processes that use a device.
[[nodiscard]] std::vector<ProcessUse> processes(unsigned index);

/// nvmlErrorString of NVML_ERROR_NOT_SUPPORTED and NVML_ERROR_DRIVER_NOT_LOADED.
extern const char* const not_supported_text;
extern const char* const no_driver_text;

}  // namespace gpupool::nvml::source
