// PTX that stands in for kernels which exist as machine code alone: it takes their parameters and does
// nothing.
//
// A driver answers questions about such a kernel (its block, its shared memory, how many fit) and refuses the
// launch alone. Libraries ask first, and some keep a refused question for ever: CUB hands its callers an
// error that PyTorch does not look at.
#pragma once

#include <string>
#include <vector>

#include "image/cubin.h"

namespace softgpu::packs {

// Kernels whose names or parameters PTX cannot write are left out. Empty if none is left.
std::string stand_in(const std::vector<const gpupool::image::CubinKernel*>& kernels);

}  // namespace softgpu::packs
