// What every function on a device begins with.
#pragma once

#include <cuda.h>

#include <new>

#include "nvml/inventory.h"

namespace gpupool::nvml {

/// The boundary to C: what is thrown would end the program. In a handler: what NVML says in its place.
inline nvmlReturn_t caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return NVML_ERROR_MEMORY;
  } catch (...) {
    return NVML_ERROR_UNKNOWN;
  }
}

/// Looks the device up and hands it to `answer`, which returns the result.
template <typename Answer>
nvmlReturn_t with_device(nvmlDevice_t handle, const void* out, Answer answer) {
  DeviceDescription device;
  const nvmlReturn_t found = Inventory::instance().find(handle, device);
  if (found != NVML_SUCCESS) return found;
  return out == nullptr ? NVML_ERROR_INVALID_ARGUMENT : answer(device);
}

/// 0 for an attribute that the driver did not tell.
inline int attribute(const DeviceDescription& device, CUdevice_attribute id) {
  const auto found = device.attributes.find(static_cast<int>(id));
  return found == device.attributes.end() ? 0 : found->second;
}

}  // namespace gpupool::nvml
