// What this process has with one of its session's workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "client/link/connection.h"
#include "client/link/door.h"
#include "profile/device_profile.h"

namespace gpupool::client {

/// A session on several nodes has one for each. The devices of the first come first in the process's
/// ordinals, then those of the next; a worker counts its own from 0.
struct WorkerLink {
  unsigned index = 0;
  // Constant once it is connected.
  std::atomic<int> first_device{0};
  std::atomic<int> devices{0};

  std::atomic<Connection*> connection{nullptr};  ///< never freed
  std::atomic<std::uint32_t> epoch{0};

  // Protected by the mutex of Runtime.
  Door door;                                     ///< with where it is, or was last
  std::shared_ptr<const DeviceProfile> profile;  ///< of its devices, by its own ordinals

  [[nodiscard]] bool has_device(int device) const {
    const int first = first_device.load(std::memory_order_relaxed);
    return device >= first && device - first < devices.load(std::memory_order_relaxed);
  }
};

}  // namespace gpupool::client
