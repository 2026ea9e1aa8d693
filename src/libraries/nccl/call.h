// Each function of NCCL has two names: a profiler puts its own in place of the first and calls the second.
#pragma once

#include "libraries/nccl/group.h"

#define GPUPOOL_NCCL_CALL(name, parameters, arguments) \
  GPUPOOL_LIBRARY_EXPORT int nccl##name parameters {   \
    return gpupool::nccl::noted(name arguments);       \
  }                                                    \
  GPUPOOL_LIBRARY_EXPORT int pnccl##name parameters {  \
    return gpupool::nccl::noted(name arguments);       \
  }
