// NVML: the link between a device and its machine. A software GPU has none; programs that estimate what a
// copy costs (TensorFlow and JAX do when they register a device) are told of an ordinary one. A real card's
// link is its node's, and its present generation follows the load: nothing that was read once would be true.
#include "nvml/device_query.h"

using namespace gpupool::nvml;
using gpupool::DeviceDescription;

namespace {

constexpr unsigned link_generation = 4;
constexpr unsigned link_lanes = 16;
constexpr unsigned lane_megabits_per_second = 16000;

nvmlReturn_t answer_of_software(nvmlDevice_t handle, unsigned int* out, unsigned int value) {
  return with_device(handle, out, [&](const DeviceDescription& device) {
    if (!device.software) return NVML_ERROR_NOT_SUPPORTED;
    *out = value;
    return NVML_SUCCESS;
  });
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t handle, unsigned int* generation) try {
  return answer_of_software(handle, generation, link_generation);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t handle, unsigned int* generation) try {
  return answer_of_software(handle, generation, link_generation);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t handle, unsigned int* generation) try {
  return answer_of_software(handle, generation, link_generation);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t handle, unsigned int* width) try {
  return answer_of_software(handle, width, link_lanes);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t handle, unsigned int* width) try {
  return answer_of_software(handle, width, link_lanes);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t handle, unsigned int* speed) try {
  return answer_of_software(handle, speed, NVML_PCIE_LINK_MAX_SPEED_16000MBPS);
} catch (...) {
  return caught();
}

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t handle, unsigned int* speed) try {
  return answer_of_software(handle, speed, lane_megabits_per_second);
} catch (...) {
  return caught();
}

}  // extern "C"
