// Executing a launch: each driver that is built from these sources has its own way.
#pragma once

#include "softgpu/driver/program/launch.h"

namespace softgpu::driver {

// All blocks, in the calling thread and others. Throws Error with the fault.
void execute(const KernelLaunch& launch);

}  // namespace softgpu::driver
