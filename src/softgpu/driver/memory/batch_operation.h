// Memory operations in streams and graphs: write a value, wait for a value, reduce.
#pragma once

#include <memory>
#include <span>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/operation.h"

namespace softgpu::driver {

class Context;

// The entries one after another. Throws Error(INVALID_VALUE) for an address that is not aligned or not on the
// device, Error(NOT_SUPPORTED) for an operation that is not known.
Operation make_batch(std::shared_ptr<Context> context, std::span<const CUstreamBatchMemOpParams> entries);

}  // namespace softgpu::driver
