// Occupancy: how many blocks a multiprocessor of the reported compute capability would hold.
#include <algorithm>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/described/occupancy.h"
#include "softgpu/driver/program/launch.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/stream/context.h"

using namespace softgpu::driver;

namespace {

CUresult max_active_blocks(int* blocks, CUfunction handle, int block_size, std::size_t dynamic_shared) {
  return entry([&] {
    require(blocks != nullptr && block_size > 0);
    const auto function = resolve_function(handle);
    *blocks = blocks_per_multiprocessor(*function, static_cast<unsigned>(block_size), dynamic_shared);
  });
}

CUresult best_block_size(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                         std::size_t shared, int limit) {
  return entry([&] {
    require(grid && block && limit >= 0);
    const auto function = resolve_function(handle);
    const int most = static_cast<int>(function->info().max_threads_per_block);
    const int start = limit ? std::min(limit, most) : most;
    int best_threads = 0;
    *grid = *block = 0;
    for (int size = start; size > 0; size = size % 32 ? size / 32 * 32 : size - 32) {
      const int blocks = blocks_per_multiprocessor(*function, static_cast<unsigned>(size),
                                                   shared_of ? shared_of(size) : shared);
      if (blocks * size > best_threads) {
        best_threads = blocks * size;
        *block = size;
        *grid = blocks * function->module().context().device().limits().multiprocessors;
      }
    }
  });
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return max_active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int) {
  return max_active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return best_block_size(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                         blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit, unsigned int) {
  return best_block_size(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                         blockSizeLimit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func, int numBlocks,
                                                 int blockSize) {
  return entry([&] {
    require(dynamicSmemSize && numBlocks > 0 && blockSize > 0);
    const auto function = resolve_function(func);
    const auto available =
        available_dynamic_shared(function->module().context().device().limits(), function->needs(), numBlocks,
                                 static_cast<unsigned>(blockSize));
    require(available.has_value());
    *dynamicSmemSize = *available;
  });
}

// Blocks here are scheduled one by one: clusters of one block are all there are.
CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  return entry([&] {
    require(clusterSize && config);
    resolve_function(func);
    *clusterSize = 1;
  });
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  return entry([&] {
    require(numClusters && config && (config->numAttrs == 0 || config->attrs));
    const auto function = resolve_function(func);
    for (unsigned n = 0; n < config->numAttrs; ++n) {
      if (config->attrs[n].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      const auto& cluster = config->attrs[n].value.clusterDim;
      require(cluster.x == 1 && cluster.y == 1 && cluster.z == 1, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    require(threads > 0);
    *numClusters = blocks_per_multiprocessor(*function, threads, config->sharedMemBytes) *
                   function->module().context().device().limits().multiprocessors;
  });
}
