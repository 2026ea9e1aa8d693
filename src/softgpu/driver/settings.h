// What the environment says about the software GPU, read once when the driver is made.
#pragma once

#include <cstddef>

namespace softgpu::driver {

struct Settings {
  int devices = 1;                                     // SOFTGPU_DEVICES, 0..16
  std::size_t memory_bytes = std::size_t{8192} << 20;  // SOFTGPU_MEMORY_MIB per device
  int capability_major = 12;                           // SOFTGPU_COMPUTE_CAPABILITY, e.g. "8.6"
  int capability_minor = 0;
  unsigned threads = 1;  // SOFTGPU_THREADS, default: the cores this process may use

  // SOFTGPU_EXECUTE=0: launches are checked and do nothing. For measuring what a test suite says of a device
  // that computes nothing; cuInit warns about it.
  bool execute = true;

  // Values that cannot be used fall back to the default; one line on stderr says which.
  static Settings from_environment();

  int capability() const { return capability_major * 10 + capability_minor; }
};

}  // namespace softgpu::driver
