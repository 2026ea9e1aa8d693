// NVML: modes and sizes of a share. Where the answer would be a guess, it is NVML_ERROR_NOT_SUPPORTED.
#include "nvml/device_query.h"

using namespace gpupool::nvml;
using gpupool::DeviceDescription;

namespace {

/// CUDA cores of one multiprocessor, as NVIDIA's tuning guides give them.
unsigned cores_per_multiprocessor(int major, int minor) {
  switch (major) {
    case 5:
      return 128;
    case 6:
      return minor == 0 ? 64 : 128;
    case 7:
      return 64;
    case 8:
      return minor == 0 ? 64 : 128;
    case 9:
    case 10:
    case 11:
    case 12:
      return 128;
    default:
      return 0;
  }
}

/// A figure of the hardware: none for a software GPU, whose attributes are nominal.
template <typename Number>
nvmlReturn_t hardware_figure(nvmlDevice_t handle, Number* out, const auto& figure) {
  return with_device(handle, out, [&](const DeviceDescription& device) {
    const auto value = device.software ? 0 : figure(device);
    if (value <= 0) return NVML_ERROR_NOT_SUPPORTED;
    *out = static_cast<Number>(value);
    return NVML_SUCCESS;
  });
}

template <typename Value>
nvmlReturn_t always(nvmlDevice_t handle, Value* out, Value value) {
  return with_device(handle, out, [&](const DeviceDescription&) { return *out = value, NVML_SUCCESS; });
}

}  // namespace

extern "C" {

// A share is no MIG device and cannot be cut into some.
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned* current, unsigned* pending) try {
  return with_device(handle, current, [&](const DeviceDescription&) {
    if (pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned* is_mig) try {
  return always(handle, is_mig, 0U);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned* count) try {
  return always(handle, count, 0U);
} catch (...) {
  return caught();
}

// The session's worker keeps the driver loaded as long as the session lives.
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, nvmlEnableState_t* mode) try {
  return always(handle, mode, NVML_FEATURE_ENABLED);
} catch (...) {
  return caught();
}

// Nothing is shown on a device in another machine.
nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t handle, nvmlEnableState_t* mode) try {
  return always(handle, mode, NVML_FEATURE_DISABLED);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t handle, nvmlEnableState_t* active) try {
  return always(handle, active, NVML_FEATURE_DISABLED);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t handle, nvmlGpuVirtualizationMode_t* mode) try {
  return always(handle, mode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t handle, unsigned* cores) try {
  return hardware_figure(handle, cores, [](const DeviceDescription& device) {
    return attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
           static_cast<int>(
               cores_per_multiprocessor(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                        attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)));
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t handle, unsigned* bits) try {
  return hardware_figure(handle, bits, [](const DeviceDescription& device) {
    return attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, nvmlClockType_t type, unsigned* mhz) try {
  return hardware_figure(handle, mhz, [&](const DeviceDescription& device) {
    switch (type) {
      case NVML_CLOCK_GRAPHICS:
      case NVML_CLOCK_SM:
        return attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
      case NVML_CLOCK_MEM:
        return attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000;
      default:
        return 0;
    }
  });
} catch (...) {
  return caught();
}

// The call succeeds and each field says for itself that it is not known.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t* values) try {
  return with_device(handle, values, [&](const DeviceDescription&) {
    if (count <= 0) return NVML_ERROR_INVALID_ARGUMENT;
    for (int n = 0; n < count; ++n) values[n].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

}  // extern "C"
