#include "worker/driver/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string_view>

namespace gpupool::worker {
namespace {

/// Stands for what a driver lacks, so that a caller need not ask first. The C ABI lets it ignore its
/// arguments.
CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

/// Names under which older drivers have a function with the same arguments.
struct OlderName {
  std::string_view name;
  const char* older;
};
constexpr OlderName older_names[] = {{"cuEventElapsedTime_v2", "cuEventElapsedTime"}};  // since CUDA 12.8

void* find(void* library, const char* name) {
  void* address = dlsym(library, name);
  for (const OlderName& one : older_names) {
    if (address == nullptr && one.name == name) address = dlsym(library, one.older);
  }
  return address != nullptr ? address : reinterpret_cast<void*>(&not_supported);
}

}  // namespace

Driver::Driver(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw std::runtime_error("cannot open the driver " + path + ": " + dlerror());
  for (const DriverSymbol& symbol : driver_symbols) {
    void* const address = find(library_, symbol.name);
    std::memcpy(reinterpret_cast<char*>(&api) + symbol.offset, &address, sizeof(address));
  }
  if (dlsym(library_, "cuInit") == nullptr || dlsym(library_, "cuDevicePrimaryCtxRetain") == nullptr) {
    throw std::runtime_error(path + " is not a CUDA driver: cuInit or cuDevicePrimaryCtxRetain is missing");
  }
}

}  // namespace gpupool::worker
