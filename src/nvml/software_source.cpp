// NVML's facts of the software GPUs of this machine: what they are from the settings, how they are used from
// the records that all processes of this user keep. NVML does not look at CUDA_VISIBLE_DEVICES, as NVIDIA's
// does not.
#include <cuda.h>

#include <algorithm>
#include <ctime>

#include "nvml/device_source.h"
#include "softgpu/driver/described/card_identity.h"
#include "softgpu/driver/described/device_limits.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/described/settings.h"
#include "softgpu/usage/busy_time.h"
#include "softgpu/usage/usage_folder.h"

namespace gpupool::nvml::source {
namespace {

namespace driver = softgpu::driver;
namespace usage = softgpu::usage;

// NVIDIA's sample periods are between a sixth of a second and a second.
constexpr std::int64_t window_ns = 1'000'000'000;

const driver::Settings& settings() {
  static const auto* const read = new driver::Settings(driver::Settings::from_environment());
  return *read;
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

DeviceDescription describe(int card) {
  const auto limits = driver::DeviceLimits::of(settings());
  DeviceDescription device;
  device.ordinal = card;
  device.name = driver::driver_identity.device_name;
  device.uuid = driver::uuid_digits_of_card(card);
  device.software = true;
  device.total_mib = settings().memory_bytes >> 20U;
  device.pci = driver::pci_bus_id_of_card(card);
  device.attributes = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, settings().capability_major},
                       {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, settings().capability_minor},
                       {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, limits.multiprocessors}};
  return device;
}

}  // namespace

const char* const not_supported_text = "The requested operation is not available on a software GPU";
const char* const no_driver_text = "This machine has no software GPU: GPUPOOL_SOFTGPU_DEVICES is 0";

bool present() {
  return settings().cards > 0;
}

std::optional<DeviceProfile> devices() {
  DeviceProfile profile;
  profile.driver_version = CUDA_VERSION;
  for (int card = 0; card < settings().cards; ++card) profile.devices.push_back(describe(card));
  return profile;
}

std::vector<ProcessUse> processes(unsigned index) {
  std::vector<ProcessUse> found;
  if (index >= usage::max_cards) return found;
  for (const auto& [pid, record] : usage::UsageFolder().read()) {
    const usage::CardUsage& card = (*record)->cards[index];
    const std::uint64_t memory = card.memory.load(std::memory_order_relaxed);
    if (memory == 0 && card.kernels.load(std::memory_order_relaxed) == 0) continue;
    ProcessUse process{pid, memory, std::nullopt};
    if (const auto history = usage::read_history(card)) {
      const std::int64_t now = monotonic_ns();
      const std::int64_t busy = usage::busy_between(*history, now - window_ns, now);
      process.utilisation = static_cast<unsigned>((100 * busy + window_ns / 2) / window_ns);
    }
    found.push_back(process);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return found;
}

std::uint64_t used_memory(unsigned index) {
  std::uint64_t used = 0;
  for (const auto& process : processes(index)) used += process.memory;
  return used;
}

std::optional<unsigned> utilisation(unsigned index) {
  unsigned percent = 0;
  for (const auto& process : processes(index)) percent += process.utilisation.value_or(0);
  return std::min(percent, 100U);  // processes work on it side by side
}

}  // namespace gpupool::nvml::source
