#include "worker/driver/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace gpupool::worker {
namespace {

/// Stands for what a driver lacks, so that a caller need not ask first. The C ABI lets it ignore its
/// arguments.
CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

Driver::Driver(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw std::runtime_error("cannot open the driver " + path + ": " + dlerror());
  for (const DriverSymbol& symbol : driver_symbols) {
    void* address = dlsym(library_, symbol.name);
    if (address == nullptr) address = reinterpret_cast<void*>(&not_supported);
    std::memcpy(reinterpret_cast<char*>(&api) + symbol.offset, &address, sizeof(address));
  }
  if (dlsym(library_, "cuInit") == nullptr || dlsym(library_, "cuDevicePrimaryCtxRetain") == nullptr) {
    throw std::runtime_error(path + " is not a CUDA driver: cuInit or cuDevicePrimaryCtxRetain is missing");
  }
}

}  // namespace gpupool::worker
