// Launches of operations.
#pragma once

#include <algorithm>
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
  return launch(O::name, &operation, operation.parts(), stream);
}

}  // namespace gpupool::libraries
