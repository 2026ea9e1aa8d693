// The values that conditional nodes decide by. A kernel sets one by its handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

struct ConditionalValue {
  std::atomic<unsigned> value{0};
  unsigned at_launch = 0;
  bool assign_at_launch = false;  // else the value of the launch before stays
  CUgraphConditionalHandle handle = 0;
};

// A value with a handle that lives as long as someone keeps the object.
std::shared_ptr<ConditionalValue> make_conditional(CUgraphConditionalHandle& handle);
// Null if the handle is not live.
std::shared_ptr<ConditionalValue> find_conditional(CUgraphConditionalHandle handle);
// What a kernel's cudaGraphSetConditional does; false for a handle that is not live.
bool set_conditional(CUgraphConditionalHandle handle, unsigned value);

}  // namespace softgpu::driver
