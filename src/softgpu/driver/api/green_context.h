// Green contexts: a context on a part of the device's multiprocessors.
//
// The multiprocessors are nominal here, and so is the partition: it is kept and told truthfully, and kernels
// run on the CPU's cores as ever.
#pragma once

#include <memory>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Context;
class Device;

struct ResourceDescriptor {
  CUdevResource processors;
};

struct GreenContext {
  std::shared_ptr<Context> context;
  CUdevResource processors;
};

/// The green context that a context was made of; null for an ordinary one.
std::shared_ptr<GreenContext> green_context_of(const Context& context);
/// All multiprocessors of the device.
CUdevResource processors_of(const Device& device);

}  // namespace softgpu::driver
