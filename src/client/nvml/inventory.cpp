#include "client/nvml/inventory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "client/nvml/session_profile.h"
#include "client/nvml/session_usage.h"

namespace gpupool::nvml {

Inventory& Inventory::instance() {
  // Never destroyed: programs call NVML from exit handlers.
  static auto* inventory = new Inventory;
  return *inventory;
}

Inventory::Inventory() {
  for (unsigned index = 0; index < kMaxDevices; ++index) handles_[index].index = index;
}

void Inventory::refresh() {
  if (auto live = runtime_profile()) {
    profile_ = std::move(*live);
  } else if (auto written = read_session_profile()) {
    profile_ = std::move(*written);
  }
  if (profile_.devices.size() > kMaxDevices) profile_.devices.resize(kMaxDevices);
}

nvmlReturn_t Inventory::initialise() {
  const std::lock_guard lock(mutex_);
  const char* session = std::getenv("GPUPOOL_SESSION_FILE");
  if (session == nullptr || *session == '\0') return NVML_ERROR_DRIVER_NOT_LOADED;
  ++users_;
  refresh();
  return NVML_SUCCESS;
}

nvmlReturn_t Inventory::shut_down() {
  const std::lock_guard lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  --users_;
  return NVML_SUCCESS;
}

bool Inventory::initialised() {
  const std::lock_guard lock(mutex_);
  return users_ > 0;
}

DeviceProfile Inventory::profile() {
  const std::lock_guard lock(mutex_);
  refresh();  // the share may have been resized since
  return profile_;
}

nvmlReturn_t Inventory::find(nvmlDevice_t handle, DeviceDescription& device) {
  const std::lock_guard lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  const bool ours =
      std::any_of(handles_.begin(), handles_.end(), [&](const nvmlDevice_st& h) { return &h == handle; });
  if (!ours || handle->index >= profile_.devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  device = profile_.devices[handle->index];
  return NVML_SUCCESS;
}

nvmlReturn_t Inventory::handle_of(std::size_t index, nvmlDevice_t* handle) {
  const std::lock_guard lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  if (handle == nullptr || index >= profile_.devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *handle = &handles_[index];
  return NVML_SUCCESS;
}

std::optional<unsigned> Inventory::utilisation() {
  const auto figures = worker_figures();
  if (!figures) {
    const auto written = read_session_usage();
    if (!written) return std::nullopt;
    return static_cast<unsigned>(std::lround(100 * written->busy));
  }
  const std::lock_guard lock(mutex_);
  const Sample now{std::chrono::steady_clock::now(), figures->device_seconds};
  if (!last_) {
    last_ = now;
    return last_percent_;
  }
  const double seconds = std::chrono::duration<double>(now.at - last_->at).count();
  if (seconds < 0.1) return last_percent_;  // several tools asking in a row shall see the same figure
  const double share = (now.device_seconds - last_->device_seconds) / seconds;
  last_percent_ = static_cast<unsigned>(std::lround(100 * std::clamp(share, 0.0, 1.0)));
  last_ = now;
  return last_percent_;
}

std::string nvml_uuid(const DeviceDescription& device) {
  const std::string& hex = device.uuid;
  if (hex.size() != 32) return "GPU-" + hex;
  return "GPU-" + hex.substr(0, 8) + '-' + hex.substr(8, 4) + '-' + hex.substr(12, 4) + '-' +
         hex.substr(16, 4) + '-' + hex.substr(20);
}

nvmlReturn_t copy_text(const std::string& text, char* buffer, unsigned length) {
  if (buffer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace gpupool::nvml
