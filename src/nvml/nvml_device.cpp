// NVML: what a device is. A handle stands for a share of a device.
#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "nvml/device_query.h"

using namespace gpupool::nvml;
using gpupool::DeviceDescription;

namespace {

struct Pci {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
};

bool parse_pci(const char* text, Pci& pci) {
  if (std::sscanf(text, "%x:%x:%x.%x", &pci.domain, &pci.bus, &pci.device, &pci.function) >= 3) return true;
  pci = {};
  return std::sscanf(text, "%x:%x.%x", &pci.bus, &pci.device, &pci.function) >= 2;
}

nvmlReturn_t handle_where(nvmlDevice_t* handle, const auto& matches) {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  const gpupool::DeviceProfile profile = Inventory::instance().profile();
  const auto found = std::find_if(profile.devices.begin(), profile.devices.end(), matches);
  if (found == profile.devices.end()) return NVML_ERROR_NOT_FOUND;
  return Inventory::instance().handle_of(static_cast<std::size_t>(found - profile.devices.begin()), handle);
}

nvmlReturn_t fill_pci(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  return with_device(handle, info, [&](const DeviceDescription& device) {
    Pci pci;
    (void)parse_pci(device.pci.c_str(), pci);
    *info = {};
    info->domain = pci.domain;
    info->bus = pci.bus;
    info->device = pci.device;
    std::snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0", pci.domain & 0xFFFFU,
                  pci.bus & 0xFFU, pci.device & 0xFFU);
    std::snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.0", pci.domain, pci.bus & 0xFFU,
                  pci.device & 0xFFU);
    return NVML_SUCCESS;
  });
}

/// The names before _v3 write the structure of before CUDA 9, which ends where busId begins but for 16
/// reserved bytes: programs that call them have no room for more.
nvmlReturn_t fill_legacy_pci(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  constexpr std::size_t legacy_bytes = 52;
  static_assert(offsetof(nvmlPciInfo_t, busId) < legacy_bytes && legacy_bytes < sizeof(nvmlPciInfo_t));
  if (info == nullptr) return fill_pci(handle, nullptr);
  nvmlPciInfo_t whole;
  if (const nvmlReturn_t bad = fill_pci(handle, &whole); bad != NVML_SUCCESS) return bad;
  std::memset(whole.busId, 0, sizeof(whole.busId));
  std::memcpy(static_cast<void*>(info), &whole, legacy_bytes);
  return NVML_SUCCESS;
}

nvmlDeviceArchitecture_t architecture_of(const DeviceDescription& device) {
  const int major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  switch (major) {
    case 5:
      return NVML_DEVICE_ARCH_MAXWELL;
    case 6:
      return NVML_DEVICE_ARCH_PASCAL;
    case 7:
      return minor >= 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA;
    case 8:
      return minor == 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
    case 9:
      return NVML_DEVICE_ARCH_HOPPER;
    case 10:
    case 11:
    case 12:
      return NVML_DEVICE_ARCH_BLACKWELL;
    default:
      return NVML_DEVICE_ARCH_UNKNOWN;
  }
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) try {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(Inventory::instance().profile().devices.size());
  return NVML_SUCCESS;
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) try {
  return nvmlDeviceGetCount_v2(count);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* handle) try {
  return Inventory::instance().handle_of(index, handle);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* handle) try {
  return Inventory::instance().handle_of(index, handle);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) try {
  if (uuid == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return handle_where(
      handle, [&](const DeviceDescription& device) { return gpupool::nvml::nvml_uuid(device) == uuid; });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* handle) try {
  Pci wanted;
  if (bus_id == nullptr || handle == nullptr || !parse_pci(bus_id, wanted))
    return NVML_ERROR_INVALID_ARGUMENT;
  return handle_where(handle, [&](const DeviceDescription& device) {
    Pci pci;
    return parse_pci(device.pci.c_str(), pci) && pci.domain == wanted.domain && pci.bus == wanted.bus &&
           pci.device == wanted.device;
  });
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* handle) try {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned int length) try {
  return with_device(handle, name,
                     [&](const DeviceDescription& device) { return copy_text(device.name, name, length); });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned int length) try {
  return with_device(handle, uuid, [&](const DeviceDescription& device) {
    return copy_text(gpupool::nvml::nvml_uuid(device), uuid, length);
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int* index) try {
  return with_device(handle, index,
                     [&](const DeviceDescription&) { return *index = handle->index, NVML_SUCCESS; });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int* minor) try {
  return nvmlDeviceGetIndex(handle, minor);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, nvmlBrandType_t* brand) try {
  return with_device(handle, brand, [&](const DeviceDescription& device) {
    *brand = !device.software && device.name.starts_with("NVIDIA") ? NVML_BRAND_NVIDIA : NVML_BRAND_UNKNOWN;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, nvmlDeviceArchitecture_t* architecture) try {
  return with_device(handle, architecture, [&](const DeviceDescription& device) {
    return *architecture = architecture_of(device), NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) try {
  return with_device(handle, major, [&](const DeviceDescription& device) {
    if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, nvmlComputeMode_t* mode) try {
  return with_device(
      handle, mode, [&](const DeviceDescription&) { return *mode = NVML_COMPUTEMODE_DEFAULT, NVML_SUCCESS; });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t* attributes) try {
  return with_device(handle, attributes, [&](const DeviceDescription& device) {
    *attributes = {};
    attributes->multiprocessorCount =
        static_cast<unsigned>(std::max(0, attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
    attributes->sharedCopyEngineCount =
        static_cast<unsigned>(std::max(0, attribute(device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)));
    attributes->memorySizeMB = device.total_mib;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* attributes) try {
  return nvmlDeviceGetAttributes_v2(handle, attributes);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_t* info) try {
  return fill_legacy_pci(handle, info);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t* info) try {
  return fill_legacy_pci(handle, info);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* info) try {
  return fill_pci(handle, info);
} catch (...) {
  return caught();
}

}  // extern "C"
