// The driver, and a communicator's context made current for a while.
#pragma once

#include <cuda.h>

#include "libraries/shared/driver.h"

namespace gpupool::nccl {

/// Initialised, with a context current to this thread. Throws Failure.
const libraries::Driver& driver();

/// Makes a context current to this thread until it is destroyed.
class InContext {
 public:
  /// Throws Failure.
  explicit InContext(CUcontext context);
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext();

 private:
  // The driver that was there: at the end the GPU session may be gone, which nobody could be told.
  const libraries::Driver& driver_;
  CUcontext before_ = nullptr;
};

}  // namespace gpupool::nccl
