// How many blocks fit.
#include "cudart/call.h"
#include "cudart/launch.h"
#include "cudart/registry.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// Occupancy questions take a function; a kernel's handle serves as one.
template <class Question>
cudaError_t ask(const void* func, Question&& question) {
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return question(d, reinterpret_cast<CUfunction>(kernel)); });
}

}  // namespace

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void* func, int blockSize,
                                                          size_t dynamicSMemSize) {
  return ask(func, [&](const EntryPoints& d, CUfunction f) {
    return d.cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, f, blockSize, dynamicSMemSize);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, const void* func,
                                                                   int blockSize, size_t dynamicSMemSize,
                                                                   unsigned int flags) {
  return ask(func, [&](const EntryPoints& d, CUfunction f) {
    return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, f, blockSize, dynamicSMemSize,
                                                                  flags);
  });
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, const void* func,
                                                      int numBlocks, int blockSize) {
  return ask(func, [&](const EntryPoints& d, CUfunction f) {
    return d.cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize, f, numBlocks, blockSize);
  });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* clusterSize, const void* func,
                                                 const cudaLaunchConfig_t* launchConfig) {
  if (launchConfig == nullptr) return cudaErrorInvalidValue;
  const CUlaunchConfig config = driver_configuration(*launchConfig, nullptr);
  return ask(func, [&](const EntryPoints& d, CUfunction f) {
    return d.cuOccupancyMaxPotentialClusterSize(clusterSize, f, &config);
  });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* numClusters, const void* func,
                                           const cudaLaunchConfig_t* launchConfig) {
  if (launchConfig == nullptr) return cudaErrorInvalidValue;
  const CUlaunchConfig config = driver_configuration(*launchConfig, nullptr);
  return ask(func, [&](const EntryPoints& d, CUfunction f) {
    return d.cuOccupancyMaxActiveClusters(numClusters, f, &config);
  });
}

}  // namespace gpupool::cudart
