// What a worker has before a session begins and keeps when one ends.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profile/device_profile.h"
#include "worker/driver/driver.h"
#include "worker/driver/driver_log.h"
#include "worker/lease/worker_state.h"
#include "worker/libraries/math_libraries.h"
#include "worker/objects/device_arena.h"
#include "worker/objects/export_door.h"
#include "worker/objects/export_table.h"
#include "worker/objects/image_cache.h"
#include "worker/objects/physical_memory.h"
#include "worker/residence/parking.h"

namespace gpupool::worker {

/// The driver and the worker's devices with the addresses on them, the node's images, the door at which other
/// workers fetch what is shared, and where memory lies.
struct Equipment {
  /// Opens the driver and finds the devices. Throws std::runtime_error with one clear sentence.
  Equipment(const std::string& driver_path, WorkerState& state);
  Equipment(const Equipment&) = delete;
  Equipment& operator=(const Equipment&) = delete;

  Driver driver;
  const DriverApi& api;
  WorkerState& state;
  ImageCache image_cache;
  ExportTable exports{random_office()};
  std::optional<ExportDoor> export_door;
  Parking parking;
  std::vector<CUdevice> devices;  ///< by the client's ordinal
  /// By the client's ordinal. The first session makes them: its client says where they are to begin.
  std::vector<std::unique_ptr<DeviceArena>> arenas;
  DeviceProfile profile;  ///< of `devices`; what changes in it, parking.identity protects
  /// NVIDIA's math libraries, which execute what clients post as operations; none where the driver does that
  /// itself.
  std::optional<MathLibraries> math_libraries;
  std::optional<DriverLog> driver_log;  ///< lines for the client's user; made with the devices

  /// The driver's device for the client's ordinal; false for an unknown one.
  [[nodiscard]] bool device(std::int32_t ordinal, CUdevice& out) const;
  /// The client's ordinal of a device of the driver; -1 for one that is not the worker's.
  [[nodiscard]] std::int32_t ordinal(CUdevice device) const;
  [[nodiscard]] DeviceArena* arena(std::int32_t ordinal);
  /// The memory behind a range of an arena; null unless it is one allocation's.
  [[nodiscard]] std::shared_ptr<PhysicalMemory> memory_at(std::uint64_t address, std::uint64_t size) const;
  /// The client's ordinal of the device whose memory is mapped at an address; -1: none is.
  [[nodiscard]] std::int32_t ordinal_at(std::uint64_t address) const;
  /// Compute capability of the devices (80, 90, 120, ...), which are of one kind.
  [[nodiscard]] unsigned capability() const;
  [[nodiscard]] bool is_software() const { return !profile.devices.empty() && profile.devices[0].software; }
  /// The arena that holds the whole range with memory the CPU can reach at the same addresses.
  [[nodiscard]] bool reachable_by_host(std::uint64_t address, std::uint64_t size) const;
  /// Whether the range may be read: mapped memory of an arena, or outside the arenas, where the driver knows.
  [[nodiscard]] bool readable(std::uint64_t address, std::uint64_t size) const;
  /// Stands in Wait::uses for all device memory.
  [[nodiscard]] const void* device_memory() const { return &arenas; }
};

}  // namespace gpupool::worker
