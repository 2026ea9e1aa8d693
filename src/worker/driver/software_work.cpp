#include "worker/driver/software_work.h"

#include <dlfcn.h>

#include <array>

#include "worker/lease/lease_gate.h"

namespace gpupool::worker {

SoftwareWork::SoftwareWork(void* library) {
  stand_still_ = reinterpret_cast<decltype(stand_still_)>(dlsym(library, "gpupool_softgpu_stand_still"));
  running_ = reinterpret_cast<decltype(running_)>(dlsym(library, "gpupool_softgpu_running"));
  device_ns_ = reinterpret_cast<decltype(device_ns_)>(dlsym(library, "gpupool_softgpu_device_ns"));
}

bool SoftwareWork::stop(StopReason reason) {
  if (!able()) return false;
  const std::lock_guard lock(mutex_);
  if (reasons_.load() == 0 && stand_still_(1) != 0) return false;
  reasons_.fetch_or(static_cast<unsigned>(reason));
  return true;
}

void SoftwareWork::go_on(StopReason reason) {
  if (!stopped(reason)) return;
  const std::lock_guard lock(mutex_);
  if (reasons_.fetch_and(~static_cast<unsigned>(reason)) != static_cast<unsigned>(reason)) return;
  static_cast<void>(stand_still_(0));
}

std::int64_t SoftwareWork::device_ns() const {
  return device_ns_ != nullptr ? device_ns_() : boottime_ns();
}

std::optional<SoftwareWork::Kernel> SoftwareWork::running() const {
  if (running_ == nullptr) return std::nullopt;
  std::array<char, 4096> name{};
  Kernel kernel;
  if (running_(name.data(), name.size(), &kernel.ns) == 0) return std::nullopt;
  kernel.name = name.data();
  return kernel;
}

}  // namespace gpupool::worker
