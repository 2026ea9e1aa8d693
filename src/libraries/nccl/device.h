// The driver's functions that this library alone uses, and a communicator's context made current for a while.
#pragma once

#include <cuda.h>

#include "libraries/shared/driver.h"

namespace gpupool::nccl {

#define GPUPOOL_NCCL_DRIVER(X) \
  X(cuCtxGetDevice)            \
  X(cuDeviceGetCount)          \
  X(cuMemcpyHtoDAsync_v2)      \
  X(cuStreamIsCapturing)

struct Device {
  const libraries::Driver* shared;
#define GPUPOOL_NCCL_MEMBER(name) decltype(&::name) name;
  GPUPOOL_NCCL_DRIVER(GPUPOOL_NCCL_MEMBER)
#undef GPUPOOL_NCCL_MEMBER
};

/// The driver, initialised, with a context current to this thread. Throws Failure.
const Device& device();

/// Makes a context current to this thread until it is destroyed.
class InContext {
 public:
  explicit InContext(CUcontext context);
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext();

 private:
  CUcontext before_ = nullptr;
};

}  // namespace gpupool::nccl
