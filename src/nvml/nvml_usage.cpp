// NVML: what is used of a device: memory, device time, processes.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>

#include "nvml/device_query.h"
#include "nvml/device_source.h"

using namespace gpupool::nvml;
using gpupool::DeviceDescription;

namespace {

constexpr unsigned no_mig_instance = 0xFFFFFFFFU;

struct MemoryFigures {
  std::uint64_t total, free, used;
};

MemoryFigures memory_of(unsigned index) {
  const gpupool::DeviceProfile now = Inventory::instance().profile();
  const std::uint64_t total = index < now.devices.size() ? now.devices[index].total_mib << 20U : 0;
  const std::uint64_t used = std::min(source::used_memory(index), total);
  return {total, total - used, used};
}

template <typename Info>
nvmlReturn_t running_processes(nvmlDevice_t handle, unsigned* count, Info* infos) {
  return with_device(handle, count, [&](const DeviceDescription&) {
    const auto found = source::processes(handle->index);
    const unsigned room = infos == nullptr ? 0 : *count;
    *count = static_cast<unsigned>(found.size());
    if (room < found.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (std::size_t n = 0; n < found.size(); ++n) {
      infos[n] = {};
      infos[n].pid = found[n].pid;
      infos[n].usedGpuMemory = found[n].memory;
      if constexpr (requires { infos[n].gpuInstanceId; }) {
        infos[n].gpuInstanceId = no_mig_instance;
        infos[n].computeInstanceId = no_mig_instance;
      }
    }
    return NVML_SUCCESS;
  });
}

template <typename Info>
nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count, Info*) {
  return with_device(handle, count, [&](const DeviceDescription&) { return *count = 0, NVML_SUCCESS; });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) try {
  return with_device(handle, memory, [&](const DeviceDescription&) {
    const MemoryFigures figures = memory_of(handle->index);
    *memory = {};
    memory->total = figures.total;
    memory->free = figures.free;
    memory->used = figures.used;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) try {
  return with_device(handle, memory, [&](const DeviceDescription&) {
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const MemoryFigures figures = memory_of(handle->index);
    memory->total = figures.total;
    memory->reserved = 0;
    memory->free = figures.free;
    memory->used = figures.used;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* rates) try {
  return with_device(handle, rates, [&](const DeviceDescription&) {
    const auto percent = source::utilisation(handle->index);
    if (!percent) return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = *percent;
    rates->memory = 0;
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t* samples,
                                             unsigned* count, unsigned long long last_seen_us) try {
  return with_device(handle, count, [&](const DeviceDescription&) {
    auto found = source::processes(handle->index);
    std::erase_if(found, [](const source::ProcessUse& process) { return !process.utilisation; });
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const auto now_us = static_cast<unsigned long long>(now.tv_sec) * 1'000'000U +
                        static_cast<unsigned long long>(now.tv_nsec) / 1000U;
    if (now_us <= last_seen_us) found.clear();
    const unsigned room = samples == nullptr ? 0 : *count;
    *count = static_cast<unsigned>(found.size());
    if (found.empty()) return NVML_ERROR_NOT_FOUND;  // NVIDIA's word for "no samples since"
    if (room < found.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (std::size_t n = 0; n < found.size(); ++n) {
      samples[n] = {};
      samples[n].pid = found[n].pid;
      samples[n].timeStamp = now_us;
      samples[n].smUtil = *found[n].utilisation;
    }
    return NVML_SUCCESS;
  });
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                  nvmlProcessInfo_v1_t* infos) try {
  return running_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) try {
  return running_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_t* infos) try {
  return running_processes(handle, count, infos);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                   nvmlProcessInfo_v1_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                      nvmlProcessInfo_v2_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                      nvmlProcessInfo_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_v1_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                        nvmlProcessInfo_v2_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                        nvmlProcessInfo_t* infos) try {
  return no_processes(handle, count, infos);
} catch (...) {
  return caught();
}

// The processes that are listed run on this machine.
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) try {
  if (!Inventory::instance().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  std::string path(4096, '\0');
  const ssize_t got = ::readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path.data(), path.size());
  if (got < 0) return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_FOUND;
  path.resize(std::min<std::size_t>(static_cast<std::size_t>(got), length - 1));  // cut, as NVIDIA's does
  return copy_text(path, name, length);
} catch (...) {
  return caught();
}

}  // extern "C"
