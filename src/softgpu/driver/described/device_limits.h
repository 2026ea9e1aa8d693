// Limits of one device of the reported compute capability (CUDA programming guide, technical specifications).
#pragma once

#include "softgpu/driver/described/settings.h"

namespace softgpu::driver {

struct DeviceLimits {
  int multiprocessors;
  int threads_per_block;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  int registers_per_block;
  int registers_per_multiprocessor;
  int registers_per_thread;
  int register_unit;   // handed out to a warp at once
  int sub_partitions;  // of a multiprocessor, each with its part of the registers
  int shared_per_block;
  int shared_per_block_optin;
  int shared_per_multiprocessor;
  int reserved_shared_per_block;
  int shared_unit;  // bytes handed out to a block at once

  static DeviceLimits of(const Settings& settings);
};

}  // namespace softgpu::driver
