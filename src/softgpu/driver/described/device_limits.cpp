#include "softgpu/driver/described/device_limits.h"

#include <algorithm>

namespace softgpu::driver {

DeviceLimits DeviceLimits::of(const Settings& settings) {
  DeviceLimits limits{};
  // At least 8: cooperative grids and persistent kernels are sized by it, and blocks cost little here.
  limits.multiprocessors = std::max(8, static_cast<int>(settings.threads));
  limits.threads_per_block = 1024;
  limits.registers_per_block = 65536;
  limits.registers_per_multiprocessor = 65536;
  limits.registers_per_thread = 255;
  limits.register_unit = 256;
  limits.sub_partitions = settings.capability() == 60 ? 2 : 4;
  limits.shared_per_block = 48 << 10;
  limits.reserved_shared_per_block = settings.capability_major >= 8 ? 1024 : 0;
  limits.shared_unit = settings.capability_major >= 8 ? 128 : 256;
  const int capability = settings.capability();
  const auto set = [&](int threads, int blocks, int shared_kib, int optin_kib) {
    limits.threads_per_multiprocessor = threads;
    limits.blocks_per_multiprocessor = blocks;
    limits.shared_per_multiprocessor = shared_kib << 10;
    limits.shared_per_block_optin = optin_kib << 10;
  };
  if (capability >= 120) {
    set(1536, 24, 100, 99);
  } else if (capability >= 90) {
    set(2048, 32, 228, 227);
  } else if (capability == 80) {
    set(2048, 32, 164, 163);
  } else if (capability == 89) {
    set(1536, 24, 100, 99);
  } else if (capability >= 80) {
    set(1536, 16, 100, 99);
  } else if (capability == 75) {
    set(1024, 16, 64, 64);
  } else {
    set(2048, 32, 96, 96);
  }
  return limits;
}

}  // namespace softgpu::driver
