#include "nvml/inventory.h"

#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "nvml/device_source.h"

namespace gpupool::nvml {

Inventory& Inventory::instance() {
  // Never destroyed: programs call NVML from exit handlers.
  static auto* inventory = new Inventory;
  return *inventory;
}

Inventory::Inventory() {
  for (unsigned index = 0; index < max_devices; ++index) handles_[index].index = index;
}

void Inventory::refresh() {
  if (auto now = source::devices()) profile_ = std::move(*now);
  if (profile_.devices.size() > max_devices) profile_.devices.resize(max_devices);
}

nvmlReturn_t Inventory::initialise() {
  const MutexLock lock(mutex_);
  if (!source::present()) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++users_;
  refresh();
  return NVML_SUCCESS;
}

nvmlReturn_t Inventory::shut_down() {
  const MutexLock lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  --users_;
  return NVML_SUCCESS;
}

bool Inventory::initialised() {
  const MutexLock lock(mutex_);
  return users_ > 0;
}

DeviceProfile Inventory::profile() {
  const MutexLock lock(mutex_);
  refresh();  // the share may have been resized since
  return profile_;
}

nvmlReturn_t Inventory::find(nvmlDevice_t handle, DeviceDescription& device) {
  const MutexLock lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  refresh();  // the session may go on on another card since
  const bool ours =
      std::any_of(handles_.begin(), handles_.end(), [&](const nvmlDevice_st& h) { return &h == handle; });
  if (!ours || handle->index >= profile_.devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  device = profile_.devices[handle->index];
  return NVML_SUCCESS;
}

nvmlReturn_t Inventory::handle_of(std::size_t index, nvmlDevice_t* handle) {
  const MutexLock lock(mutex_);
  if (users_ == 0) return NVML_ERROR_UNINITIALIZED;
  refresh();  // there may be devices since
  if (handle == nullptr || index >= profile_.devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *handle = &handles_[index];
  return NVML_SUCCESS;
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
