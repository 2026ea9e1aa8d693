// Numbers that an operation is given: their bytes, or their address in device memory.
#pragma once

#include <cstdint>

#include "libraries/operations/element.h"

namespace gpupool::operations {

/// A factor: its bytes, or its address in device memory.
struct Scalar {
  std::uint64_t words[2] = {};
};

/// A factor that says what it is.
struct Factor {
  Scalar value;
  Element type = Element::f32;
  Flag on_device = false;
  std::uint8_t reserved[6] = {};
};

}  // namespace gpupool::operations
