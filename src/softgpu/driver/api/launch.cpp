// Kernel launches.
#include "softgpu/driver/program/launch.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/event.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

void launch(CUfunction handle, const LaunchShape& shape, CUstream stream_handle, void** parameters,
            void** extra) {
  const auto stream = resolve_stream(stream_handle);
  const auto function = resolve_function(handle, stream->context().shared_from_this());
  require(&function->module().context() == &stream->context(), CUDA_ERROR_INVALID_HANDLE);
  require(!(parameters && extra));
  issue(stream, make_launch(prepare_launch(function, shape, parameters, extra)));
  if (!Driver::get().settings.launch_blocking || is_capturing(*stream)) return;
  stream->synchronize();
  stream->context().flush_printf();
  stream->context().check_usable();
}

// What a launch attribute changes here. Hints for hardware that is not there have no effect; one that would
// change the result of the kernel is refused.
void apply(const CUlaunchAttribute& attribute, LaunchShape& shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = attribute.value.cooperative != 0;
      return;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& cluster = attribute.value.clusterDim;
      require(cluster.x && cluster.y && cluster.z);
      require(cluster.x == 1 && cluster.y == 1 && cluster.z == 1, CUDA_ERROR_NOT_SUPPORTED);
      return;
    }
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      fail(CUDA_ERROR_NOT_SUPPORTED);
    default:
      require(attribute.id >= CU_LAUNCH_ATTRIBUTE_IGNORE &&
              attribute.id <= CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE);
  }
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  return entry([&] {
    launch(f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, false},
           hStream, kernelParams, extra);
  });
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  return entry([&] {
    launch(f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true},
           hStream, kernelParams, nullptr);
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  return entry([&] {
    require(config != nullptr && (config->numAttrs == 0 || config->attrs));
    LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                      {config->blockDimX, config->blockDimY, config->blockDimZ},
                      config->sharedMemBytes,
                      false};
    for (unsigned i = 0; i < config->numAttrs; ++i) apply(config->attrs[i], shape);
    launch(f, shape, config->hStream, kernelParams, extra);
  });
}
