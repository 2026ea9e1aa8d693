// Launches of operations.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include "libraries/operations/operation.h"
#include "libraries/shared/driver.h"

namespace gpupool::libraries {

/// The kernel that stands for an operation; loads the image of all operations once for each GPU session.
CUresult kernel_of(const Driver& driver, const char* name, CUfunction& kernel);

/// Loads what the first launch would load, so that a library that cannot work here says so when it is made.
CUresult prepare();

CUresult launch(const char* name, const void* operation, std::uint64_t parts, CUstream stream);

/// Posts an operation to a stream: nothing is waited for.
template <operations::Operation O>
CUresult launch(const O& operation, CUstream stream) {
  // Where parts follow each other, a block does those that wait for each other.
  if constexpr (requires {
                  { operation.blocks() } -> std::same_as<std::uint64_t>;
                }) {
    return launch(O::name, &operation, operation.blocks(), stream);
  } else {
    return launch(O::name, &operation, operation.parts(), stream);
  }
}

}  // namespace gpupool::libraries
