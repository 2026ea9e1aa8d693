// What the worker needs in order to give the devices up and to come back.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "profile/device_profile.h"
#include "worker/residence/memory_mover.h"
#include "worker/residence/park_obstacles.h"
#include "worker/residence/residence.h"

namespace gpupool::worker {

struct Parking {
  Parking(DeviceProfile all_devices, std::unique_ptr<ProcessCheckpoint> checkpoint)
      : mover(std::move(checkpoint), residence), machine(std::move(all_devices)) {
    for (const DeviceDescription& device : machine.devices) cards.push_back(device.uuid);
  }

  Residence residence;
  MemoryMover mover;
  std::mutex moving;  ///< held by who moves memory: the node agent's commands, and who fetches the session
  ParkObstacles obstacles;
  std::mutex identity;             ///< protects what is known of the devices
  DeviceProfile machine;           ///< all devices of the driver
  std::vector<std::string> cards;  ///< UUIDs by the driver's ordinal, as they are now
};

}  // namespace gpupool::worker
