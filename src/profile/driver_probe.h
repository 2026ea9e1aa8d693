// Asks a driver what devices it has.
#pragma once

#include "profile/device_profile.h"

namespace gpupool {

/// `library` is a driver opened by dlopen. Calls cuInit. Throws std::runtime_error with one clear sentence
/// when the driver cannot be used; a driver without devices gives an empty list.
[[nodiscard]] DeviceProfile probe_driver(void* library);

}  // namespace gpupool
