#include "cudart/launch.h"

#include <algorithm>

#include "cudart/call.h"
#include "cudart/registry.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

/// The driver calls a launch whose shape no device could run an invalid value; the runtime tells more.
cudaError_t explain(cudaError_t error, const dim3& grid, const dim3& block) {
  CUdevice device = 0;
  if (error != cudaErrorInvalidValue || current_device(device) != cudaSuccess) return error;
  const auto most = [&](int attribute) {
    int value = 0;
    driver().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
    return static_cast<unsigned long long>(std::max(value, 0));
  };
  const unsigned blocks[] = {grid.x, grid.y, grid.z}, threads[] = {block.x, block.y, block.z};
  for (int n = 0; n < 3; ++n) {
    if (blocks[n] == 0 || threads[n] == 0 || blocks[n] > most(cudaDevAttrMaxGridDimX + n) ||
        threads[n] > most(cudaDevAttrMaxBlockDimX + n))
      return cudaErrorInvalidConfiguration;
  }
  const auto all = static_cast<unsigned long long>(block.x) * block.y * block.z;
  return all > most(cudaDevAttrMaxThreadsPerBlock) ? cudaErrorInvalidConfiguration : error;
}

cudaError_t result_of(cudaError_t error, const dim3& grid, const dim3& block) {
  return error == cudaSuccess ? cudaSuccess : explain(error, grid, block);
}

}  // namespace

CUlaunchConfig driver_configuration(const cudaLaunchConfig_t& config, CUstream default_stream) {
  CUlaunchConfig made{};
  made.gridDimX = config.gridDim.x;
  made.gridDimY = config.gridDim.y;
  made.gridDimZ = config.gridDim.z;
  made.blockDimX = config.blockDim.x;
  made.blockDimY = config.blockDim.y;
  made.blockDimZ = config.blockDim.z;
  made.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  made.hStream = config.stream == nullptr ? default_stream : config.stream;
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  made.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  made.numAttrs = config.numAttrs;
  return made;
}

cudaError_t launch(CUkernel kernel, const dim3& grid, const dim3& block, void** arguments, size_t shared,
                   CUstream stream) {
  // A kernel's handle serves where a function's does, in whatever context is current.
  const auto function = reinterpret_cast<CUfunction>(kernel);
  const cudaError_t result = forward([&](const EntryPoints& d) {
    return d.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                            static_cast<unsigned>(shared), stream, arguments, nullptr);
  });
  return result_of(result, grid, block);
}

cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                             cudaStream_t stream) {
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  return launch(kernel, gridDim, blockDim, args, sharedMem, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                        size_t sharedMem, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  const cudaError_t result = forward([&](const EntryPoints& d) {
    return d.cuLaunchCooperativeKernel(reinterpret_cast<CUfunction>(kernel), gridDim.x, gridDim.y, gridDim.z,
                                       blockDim.x, blockDim.y, blockDim.z, static_cast<unsigned>(sharedMem),
                                       stream, args);
  });
  return result_of(result, gridDim, blockDim);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args,
                                CUstream default_stream) {
  if (config == nullptr) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  if (const cudaError_t bad = kernel_handle(func, kernel); bad != cudaSuccess) return bad;
  const CUlaunchConfig made = driver_configuration(*config, default_stream);
  const cudaError_t result = forward([&](const EntryPoints& d) {
    return d.cuLaunchKernelEx(&made, reinterpret_cast<CUfunction>(kernel), args, nullptr);
  });
  return result_of(result, config->gridDim, config->blockDim);
}

}  // namespace gpupool::cudart
