// Launches by the driver's handle.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

cudaError_t launch(CUkernel kernel, const dim3& grid, const dim3& block, void** arguments, size_t shared,
                   CUstream stream);

/// The driver's form of a launch configuration. The attributes are the same structure.
CUlaunchConfig driver_configuration(const cudaLaunchConfig_t& config, CUstream default_stream);

}  // namespace gpupool::cudart
