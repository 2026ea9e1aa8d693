// Gives the devices up and comes back: device memory moves to the host, and onto the same or other devices.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/conversation/conversation.h"
#include "worker/device_time/device_work.h"
#include "worker/lease/worker_state.h"
#include "worker/session/equipment.h"

namespace gpupool::worker {

class SessionParking {
 public:
  SessionParking(Equipment& equipment, DeviceWork& work, Conversation& conversation)
      : equipment_(equipment), work_(work), conversation_(conversation) {}

  /// Where memory is, and what stands in the way of moving it. Any thread, any time, without waiting.
  [[nodiscard]] MemoryReport report() const;

  // One at a time, from one thread that is neither the control thread nor serves; without a lease in force.

  /// Moves the device memory to the host, after at most `drain_ms` of waiting for work. Idempotent.
  MoveResult park(int drain_ms);
  /// Moves it back, onto the devices named. Idempotent. On a failure it stays in the host.
  MoveResult resume(const std::vector<DeviceChange>& devices);

 private:
  [[nodiscard]] std::string obstacle() const;
  [[nodiscard]] bool drain(int timeout_ms);
  void change_cards(const std::vector<std::pair<std::string, std::string>>& pairs);

  Equipment& equipment_;
  DeviceWork& work_;
  Conversation& conversation_;
};

}  // namespace gpupool::worker
