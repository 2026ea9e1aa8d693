#include "profile/driver_probe.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace gpupool {
namespace {

/// Drivers of this project, by the names of their devices: nobody may take those for real GPUs.
constexpr std::string_view software_names[] = {"Software GPU", "null driver"};

bool is_software(std::string_view name) {
  return std::ranges::any_of(software_names, [&](std::string_view known) { return name.starts_with(known); });
}

template <typename Function>
Function* required(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) throw std::runtime_error(std::string("the driver does not export ") + name);
  return reinterpret_cast<Function*>(symbol);
}

void check(CUresult result, const char* name) {
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(name) + " of the driver returned CUDA error " +
                             std::to_string(result));
  }
}

std::string hex(const CUuuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : uuid.bytes) {
    text += digits[(static_cast<unsigned char>(byte) >> 4U) & 15U];
    text += digits[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}

DeviceDescription describe(void* library, int ordinal) {
  DeviceDescription description;
  description.ordinal = ordinal;

  CUdevice device = 0;
  check(required<CUresult(CUdevice*, int)>(library, "cuDeviceGet")(&device, ordinal), "cuDeviceGet");

  std::array<char, 256> text{};
  check(required<CUresult(char*, int, CUdevice)>(library, "cuDeviceGetName")(text.data(), text.size() - 1,
                                                                             device),
        "cuDeviceGetName");
  description.name = text.data();
  description.software = is_software(description.name);

  CUuuid uuid{};
  const char* uuid_name =
      dlsym(library, "cuDeviceGetUuid_v2") != nullptr ? "cuDeviceGetUuid_v2" : "cuDeviceGetUuid";
  check(required<CUresult(CUuuid*, CUdevice)>(library, uuid_name)(&uuid, device), uuid_name);
  description.uuid = hex(uuid);

  std::size_t bytes = 0;
  check(required<CUresult(std::size_t*, CUdevice)>(library, "cuDeviceTotalMem_v2")(&bytes, device),
        "cuDeviceTotalMem_v2");
  description.total_mib = bytes >> 20U;

  text.fill(0);
  auto* pci = reinterpret_cast<CUresult (*)(char*, int, CUdevice)>(dlsym(library, "cuDeviceGetPCIBusId"));
  const bool has_pci = pci != nullptr && pci(text.data(), text.size() - 1, device) == CUDA_SUCCESS;
  description.pci = has_pci ? text.data() : "0000:00:00.0";

  auto* attribute = required<CUresult(int*, CUdevice_attribute, CUdevice)>(library, "cuDeviceGetAttribute");
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    int value = 0;
    if (attribute(&value, static_cast<CUdevice_attribute>(id), device) == CUDA_SUCCESS) {
      description.attributes[id] = value;
    }
  }
  return description;
}

}  // namespace

DeviceProfile probe_driver(void* library) {
  const CUresult initialised = required<CUresult(unsigned)>(library, "cuInit")(0);
  DeviceProfile profile;
  if (initialised == CUDA_ERROR_NO_DEVICE) return profile;
  check(initialised, "cuInit");
  check(required<CUresult(int*)>(library, "cuDriverGetVersion")(&profile.driver_version),
        "cuDriverGetVersion");
  int count = 0;
  check(required<CUresult(int*)>(library, "cuDeviceGetCount")(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) profile.devices.push_back(describe(library, ordinal));
  return profile;
}

}  // namespace gpupool
