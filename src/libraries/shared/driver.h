// The driver below a math library: whatever libcuda.so.1 the process has, and only its public functions.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace gpupool::libraries {

#define GPUPOOL_LIBRARY_DRIVER(X) \
  X(cuInit)                       \
  X(cuCtxGetCurrent)              \
  X(cuCtxGetDevice)               \
  X(cuCtxSetCurrent)              \
  X(cuDeviceGet)                  \
  X(cuDeviceGetAttribute)         \
  X(cuDeviceGetCount)             \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuLibraryLoadData)            \
  X(cuLibraryGetKernel)           \
  X(cuLaunchKernel)               \
  X(cuMemAlloc_v2)                \
  X(cuMemFree_v2)                 \
  X(cuMemcpyDtoHAsync_v2)         \
  X(cuMemcpyHtoDAsync_v2)         \
  X(cuMemcpy2DAsync_v2)           \
  X(cuMemsetD32Async)             \
  X(cuStreamIsCapturing)          \
  X(cuStreamQuery)                \
  X(cuStreamSynchronize)

struct Driver {
#define GPUPOOL_LIBRARY_MEMBER(name) decltype(&::name) name;
  GPUPOOL_LIBRARY_DRIVER(GPUPOOL_LIBRARY_MEMBER)
#undef GPUPOOL_LIBRARY_MEMBER
  /// Another number once the driver has lost all that it held, as the client runtime does when another GPU
  /// session follows one that ended; always 0 with other drivers.
  unsigned (*session)();
};

/// Loaded and initialised, with a context current to this thread (the first device's primary one where there
/// was none). CUDA_SUCCESS, or why there is no driver.
CUresult enter(const Driver*& driver);

/// The compute capability of the current context's device, as major · 10 + minor.
CUresult compute_capability(int& capability);

/// Copies bytes that a stream's work has left in device memory to the program's, and waits for them. A stream
/// that is captured does not let it.
CUresult read_back(const Driver& driver, void* into, CUdeviceptr from, std::size_t bytes, CUstream stream);

}  // namespace gpupool::libraries
