// cudaDeviceProp from the driver's attributes.
#pragma once

#include "cudart/cuda_api.h"

namespace gpupool::cudart {

cudaError_t device_properties(cudaDeviceProp& properties, int device);

}  // namespace gpupool::cudart
