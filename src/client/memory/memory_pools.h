// Blocks of stream-ordered memory and the pools that account for them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/mutex.h"

namespace gpupool::client {

/// Frees what the program got from any allocation function for device memory. `stream` is 0 where the free is
/// not stream-ordered.
CUresult free_block(CUdeviceptr address, std::uint64_t stream);

/// Protects the accounts and attributes of all pools, and which of them are in force. Nothing is called under
/// it that waits.
Mutex& pool_mutex();

/// A pool uses so many bytes less than it did. Nothing happens where there is no such pool: its memory may
/// outlive it.
void uncount_in_pool(std::uint64_t pool, std::uint64_t bytes);

}  // namespace gpupool::client
