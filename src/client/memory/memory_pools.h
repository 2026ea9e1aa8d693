// Blocks of stream-ordered memory and the pools that account for them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpupool::client {

/// Frees what the program got from any allocation function for device memory. `stream` is 0 where the free is
/// not stream-ordered.
CUresult free_block(CUdeviceptr address, std::uint64_t stream);

}  // namespace gpupool::client
