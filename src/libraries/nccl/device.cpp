#include "libraries/nccl/device.h"

#include <dlfcn.h>

#include "libraries/nccl/status.h"

namespace gpupool::nccl {
namespace {

Device find_device_functions(const libraries::Driver* shared) {
  Device found{};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  require(library != nullptr, "there is no driver", unhandled_cuda_error);
  found.shared = shared;
#define GPUPOOL_NCCL_FIND(name)                                               \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name)); \
  require(found.name != nullptr, "the driver lacks " #name, unhandled_cuda_error);
  GPUPOOL_NCCL_DRIVER(GPUPOOL_NCCL_FIND)
#undef GPUPOOL_NCCL_FIND
  return found;
}

}  // namespace

const Device& device() {
  const libraries::Driver* shared = nullptr;
  require_driver(libraries::enter(shared), "no GPU");
  static const Device found = find_device_functions(shared);
  return found;
}

InContext::InContext(CUcontext context) {
  const Device& gpu = device();
  require_driver(gpu.shared->cuCtxGetCurrent(&before_), "the current context");
  require_driver(gpu.shared->cuCtxSetCurrent(context), "the communicator's context");
}

InContext::~InContext() {
  static_cast<void>(device().shared->cuCtxSetCurrent(before_));
}

}  // namespace gpupool::nccl
