// Which versions cuBLAS and cuBLASLt say that they are.
#pragma once

#include "libraries/shared/version.h"

namespace gpupool::cublas {

/// Those of CUDA 12.9 and 13.1. Programs look at it before they use factors of blocks.
inline constexpr libraries::Version own_version{GPUPOOL_CUDA_MAJOR, GPUPOOL_CUDA_MAJOR == 12 ? 9 : 1, 0};

/// The same in one number, as these two libraries say it.
inline constexpr int version_number = own_version.major * 10000 + own_version.minor * 100 + own_version.patch;

}  // namespace gpupool::cublas
