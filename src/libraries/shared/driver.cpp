#include "libraries/shared/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace gpupool::libraries {
namespace {

unsigned only_session() {
  return 0;
}

/// Never freed: threads may call the driver until the process is gone. Null: none, or it lacks a function.
const Driver* open_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  auto driver = std::make_unique<Driver>();
#define GPUPOOL_LIBRARY_FIND(name)                                                \
  driver->name = reinterpret_cast<decltype(driver->name)>(dlsym(library, #name)); \
  if (driver->name == nullptr) return nullptr;
  GPUPOOL_LIBRARY_DRIVER(GPUPOOL_LIBRARY_FIND)
#undef GPUPOOL_LIBRARY_FIND
  void* const sessions = dlsym(library, "gpupool_session_generation");
  driver->session = sessions != nullptr ? reinterpret_cast<unsigned (*)()>(sessions) : &only_session;
  return driver.release();
}

std::atomic<const Driver*> ready{nullptr};
std::mutex opening;

CUresult load(const Driver*& driver) {
  driver = ready.load(std::memory_order_acquire);
  if (driver != nullptr) return CUDA_SUCCESS;
  // A failure is not remembered: a GPU may be attached later.
  const std::lock_guard lock(opening);
  static const Driver* opened = nullptr;
  if (opened == nullptr) opened = open_driver();
  if (opened == nullptr) return CUDA_ERROR_NO_DEVICE;
  if (const CUresult bad = opened->cuInit(0); bad != CUDA_SUCCESS) return bad;
  ready.store(opened, std::memory_order_release);
  driver = opened;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult enter(const Driver*& driver) {
  if (const CUresult bad = load(driver); bad != CUDA_SUCCESS) return bad;
  CUcontext context = nullptr;
  if (const CUresult bad = driver->cuCtxGetCurrent(&context); bad != CUDA_SUCCESS) return bad;
  if (context != nullptr) return CUDA_SUCCESS;
  CUdevice device = 0;
  if (const CUresult bad = driver->cuDeviceGet(&device, 0); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = driver->cuDevicePrimaryCtxRetain(&context, device); bad != CUDA_SUCCESS)
    return bad;
  return driver->cuCtxSetCurrent(context);
}

CUresult compute_capability(int& capability) {
  const Driver* driver = nullptr;
  if (const CUresult bad = enter(driver); bad != CUDA_SUCCESS) return bad;
  CUdevice device = 0;
  if (const CUresult bad = driver->cuCtxGetDevice(&device); bad != CUDA_SUCCESS) return bad;
  int major = 0, minor = 0;
  for (const auto& [value, id] : {std::pair{&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                                  {&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR}}) {
    if (const CUresult bad = driver->cuDeviceGetAttribute(value, id, device); bad != CUDA_SUCCESS) return bad;
  }
  capability = major * 10 + minor;
  return CUDA_SUCCESS;
}

CUresult read_back(const Driver& driver, void* into, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const CUresult bad = driver.cuMemcpyDtoHAsync_v2(into, from, bytes, stream);
  return bad == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : bad;
}

}  // namespace gpupool::libraries
