// NVML: what a device is. A handle stands for a share of a device, so memory and processes are those of the
// share.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "client/nvml/inventory.h"

using gpupool::DeviceDescription;
using gpupool::nvml::copy_text;
using gpupool::nvml::Inventory;

namespace {

constexpr unsigned kNoMigInstance = 0xFFFFFFFFU;

/// Looks the device up and hands it to `answer`, which returns the result.
template <typename Answer>
nvmlReturn_t with_device(nvmlDevice_t handle, const void* out, Answer answer) {
  DeviceDescription device;
  const nvmlReturn_t found = Inventory::instance().find(handle, device);
  if (found != NVML_SUCCESS) return found;
  return out == nullptr ? NVML_ERROR_INVALID_ARGUMENT : answer(device);
}

int attribute(const DeviceDescription& device, CUdevice_attribute id) {
  const auto found = device.attributes.find(static_cast<int>(id));
  return found == device.attributes.end() ? 0 : found->second;
}

struct Pci {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
};

bool parse_pci(const char* text, Pci& pci) {
  if (std::sscanf(text, "%x:%x:%x.%x", &pci.domain, &pci.bus, &pci.device, &pci.function) >= 3) return true;
  pci = {};
  return std::sscanf(text, "%x:%x.%x", &pci.bus, &pci.device, &pci.function) >= 2;
}

std::uint64_t used_bytes(unsigned index) {
  const auto figures = gpupool::nvml::worker_figures();
  return figures && index < figures->memory_used.size() ? figures->memory_used[index] : 0;
}

struct MemoryFigures {
  std::uint64_t total, free, used;
};

MemoryFigures memory_of(unsigned index) {
  const gpupool::DeviceProfile now = Inventory::instance().profile();
  const std::uint64_t total = index < now.devices.size() ? now.devices[index].total_mib << 20U : 0;
  const std::uint64_t used = std::min(used_bytes(index), total);
  return {total, total - used, used};
}

/// The share's processes are this one, once it holds memory: others of the same user have sessions of their
/// own.
template <typename Info>
nvmlReturn_t running_processes(nvmlDevice_t handle, unsigned* count, Info* infos) {
  return with_device(handle, count, [&](const DeviceDescription&) {
    const std::uint64_t used = used_bytes(handle->index);
    const unsigned room = infos == nullptr ? 0 : *count;
    *count = used > 0 ? 1 : 0;
    if (*count == 0) return NVML_SUCCESS;
    if (room < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
    infos[0] = {};
    infos[0].pid = static_cast<unsigned>(::getpid());
    infos[0].usedGpuMemory = used;
    if constexpr (requires { infos[0].gpuInstanceId; }) {
      infos[0].gpuInstanceId = kNoMigInstance;
      infos[0].computeInstanceId = kNoMigInstance;
    }
    return NVML_SUCCESS;
  });
}

template <typename Info>
nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count, Info*) {
  return with_device(handle, count, [&](const DeviceDescription&) { return *count = 0, NVML_SUCCESS; });
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

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(Inventory::instance().profile().devices.size());
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* handle) {
  return Inventory::instance().handle_of(index, handle);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* handle) {
  return Inventory::instance().handle_of(index, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) {
  if (uuid == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return handle_where(
      handle, [&](const DeviceDescription& device) { return gpupool::nvml::nvml_uuid(device) == uuid; });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* handle) {
  Pci wanted;
  if (bus_id == nullptr || handle == nullptr || !parse_pci(bus_id, wanted))
    return NVML_ERROR_INVALID_ARGUMENT;
  return handle_where(handle, [&](const DeviceDescription& device) {
    Pci pci;
    return parse_pci(device.pci.c_str(), pci) && pci.domain == wanted.domain && pci.bus == wanted.bus &&
           pci.device == wanted.device;
  });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned int length) {
  return with_device(handle, name,
                     [&](const DeviceDescription& device) { return copy_text(device.name, name, length); });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned int length) {
  return with_device(handle, uuid, [&](const DeviceDescription& device) {
    return copy_text(gpupool::nvml::nvml_uuid(device), uuid, length);
  });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int* index) {
  return with_device(handle, index,
                     [&](const DeviceDescription&) { return *index = handle->index, NVML_SUCCESS; });
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int* minor) {
  return nvmlDeviceGetIndex(handle, minor);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, nvmlBrandType_t* brand) {
  return with_device(handle, brand, [&](const DeviceDescription& device) {
    *brand = !device.software && device.name.starts_with("NVIDIA") ? NVML_BRAND_NVIDIA : NVML_BRAND_UNKNOWN;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, nvmlDeviceArchitecture_t* architecture) {
  return with_device(handle, architecture, [&](const DeviceDescription& device) {
    return *architecture = architecture_of(device), NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) {
  return with_device(handle, major, [&](const DeviceDescription& device) {
    if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, nvmlComputeMode_t* mode) {
  return with_device(
      handle, mode, [&](const DeviceDescription&) { return *mode = NVML_COMPUTEMODE_DEFAULT, NVML_SUCCESS; });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  return with_device(handle, memory, [&](const DeviceDescription&) {
    const MemoryFigures figures = memory_of(handle->index);
    *memory = {};
    memory->total = figures.total;
    memory->free = figures.free;
    memory->used = figures.used;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  return with_device(handle, memory, [&](const DeviceDescription&) {
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const MemoryFigures figures = memory_of(handle->index);
    memory->total = figures.total;
    memory->reserved = 0;
    memory->free = figures.free;
    memory->used = figures.used;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* rates) {
  return with_device(handle, rates, [&](const DeviceDescription&) {
    const auto percent = Inventory::instance().utilisation();
    if (!percent) return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = *percent;
    rates->memory = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t* attributes) {
  return with_device(handle, attributes, [&](const DeviceDescription& device) {
    *attributes = {};
    attributes->multiprocessorCount =
        static_cast<unsigned>(std::max(0, attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
    attributes->sharedCopyEngineCount =
        static_cast<unsigned>(std::max(0, attribute(device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)));
    attributes->memorySizeMB = device.total_mib;
    return NVML_SUCCESS;
  });
}
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* attributes) {
  return nvmlDeviceGetAttributes_v2(handle, attributes);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  return fill_pci(handle, info);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  return fill_pci(handle, info);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  return fill_pci(handle, info);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return running_processes(handle, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return running_processes(handle, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_t* infos) {
  return running_processes(handle, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                   nvmlProcessInfo_v1_t* infos) {
  return no_processes(handle, count, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                      nvmlProcessInfo_v2_t* infos) {
  return no_processes(handle, count, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                      nvmlProcessInfo_t* infos) {
  return no_processes(handle, count, infos);
}

}  // extern "C"
