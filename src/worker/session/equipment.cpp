#include "worker/session/equipment.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "profile/driver_probe.h"

namespace gpupool::worker {

Equipment::Equipment(const std::string& driver_path, WorkerState& worker_state)
    : driver(driver_path),
      api(driver.api),
      state(worker_state),
      image_cache(worker_state.image_cache, {worker_state.image_cache_mib << 20U}),
      parking{probe_driver(driver.library()), open_process_checkpoint(driver.library())} {
  if (state.user) export_door.emplace(exports.office(), *state.user, exports);
  const DeviceProfile& all = parking.machine;
  profile.driver_version = all.driver_version;
  for (const DeviceShare& share : state.devices) {
    // By UUID: ordinals depend on the driver's environment, and the wrong device would be someone else's.
    const DeviceDescription* found = nullptr;
    for (const auto& device : all.devices) {
      if (device.uuid == share.uuid) found = &device;
    }
    if (found == nullptr) throw std::runtime_error("the driver has no device with UUID " + share.uuid);
    CUdevice device = 0;
    if (api.cuDeviceGet_(&device, found->ordinal) != CUDA_SUCCESS) {
      throw std::runtime_error("the driver refuses device " + std::to_string(found->ordinal));
    }
    profile.devices.push_back(*found);
    profile.devices.back().ordinal = static_cast<int>(devices.size());
    devices.push_back(device);
  }
  if (is_software()) {
    driver_log.emplace(driver);
  } else {
    driver_log.emplace();  // NVIDIA's own repeats what results say
  }
  const char* const folders = std::getenv("GPUPOOL_MATH_LIBRARIES");
  if (!is_software() || folders != nullptr) math_libraries.emplace(api, folders != nullptr ? folders : "");
}

bool Equipment::device(std::int32_t ordinal, CUdevice& out) const {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) return false;
  out = devices[static_cast<std::size_t>(ordinal)];
  return true;
}

std::int32_t Equipment::ordinal(CUdevice device) const {
  const auto found = std::find(devices.begin(), devices.end(), device);
  return found == devices.end() ? -1 : static_cast<std::int32_t>(found - devices.begin());
}

unsigned Equipment::capability() const {
  if (profile.devices.empty()) return 0;
  const auto get = [this](int attribute) {
    const auto& attributes = profile.devices[0].attributes;
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0u : static_cast<unsigned>(found->second);
  };
  return get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

DeviceArena* Equipment::arena(std::int32_t ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= arenas.size()) return nullptr;
  return arenas[static_cast<std::size_t>(ordinal)].get();
}

bool Equipment::reachable_by_host(std::uint64_t address, std::uint64_t size) const {
  for (const auto& arena : arenas) {
    if (arena->reachable_by_host(address, size)) return true;
  }
  return false;
}

std::shared_ptr<PhysicalMemory> Equipment::memory_at(std::uint64_t address, std::uint64_t size) const {
  for (const auto& arena : arenas) {
    if (arena->contains(address)) return arena->memory_at(address, size);
  }
  return nullptr;
}

std::int32_t Equipment::ordinal_at(std::uint64_t address) const {
  const std::shared_ptr<PhysicalMemory> memory = memory_at(address, 1);
  return memory == nullptr ? -1 : ordinal(memory->location().id);
}

bool Equipment::readable(std::uint64_t address, std::uint64_t size) const {
  if (size == 0 || address + size < address) return false;
  for (const auto& arena : arenas) {
    if (arena->contains(address)) return arena->covers_readable(address, size);
  }
  return true;
}

}  // namespace gpupool::worker
