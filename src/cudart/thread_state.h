// What the runtime keeps for each thread.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

struct ThreadState {
  cudaError_t last_error = cudaSuccess;
  unsigned error_session = 0;  ///< the driver's session in which that error came, if it is a sticky one
  unsigned error_resets = 0;   ///< how many resets of the device there had been by then
  int error_device = 0;        ///< which device
  bool peeked = false;         ///< at that error
  int device = 0;              ///< chosen by cudaSetDevice
  CUcontext own = nullptr;     ///< the primary context that the runtime made current, if it did
  bool ready = false;          ///< the driver is loaded and this thread was given a context
};

extern constinit thread_local ThreadState thread_state;

}  // namespace gpupool::cudart
