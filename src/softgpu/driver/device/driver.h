// The process-wide driver object: settings, devices, and the gate in front of every call. The objects
// that a program has are in registry<Object>().
//
// It is made by the first call and never destroyed, so that calls and threads during process exit find it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/described/settings.h"
#include "softgpu/driver/device/api_gate.h"
#include "softgpu/driver/device/device.h"

namespace softgpu::driver {

class Driver {
 public:
  static Driver& get();

  const Settings settings;

  // cuInit. Throws Error(NO_DEVICE).
  void initialise();
  bool usable() const { return initialised_ && !forked_; }
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  // Throws Error(INVALID_DEVICE).
  Device& device(int ordinal) const;
  // The device that is on the card now. Throws Error(INVALID_DEVICE).
  Device& device_on_card(int card) const;

  ApiGate gate;

 private:
  Driver();

  std::vector<std::unique_ptr<Device>> devices_;
  gpupool::Mutex setup_mutex_;
  std::atomic<bool> initialised_{false};
  std::atomic<bool> forked_{false};
};

}  // namespace softgpu::driver
