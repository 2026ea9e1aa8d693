#include "worker/process/probe.h"

#include <dlfcn.h>

#include <cstdio>
#include <stdexcept>

#include "profile/driver_probe.h"

namespace gpupool::worker {

void warm_up(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("cannot open the driver " + path + ": " + dlerror());
  static_cast<void>(probe_driver(library));
}

int probe_main(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "gpupool-worker: cannot open the driver %s: %s\n", path.c_str(), dlerror());
    return 1;
  }
  try {
    const DeviceProfile profile = probe_driver(library);
    if (profile.devices.empty()) {
      std::fprintf(stderr, "gpupool-worker: the driver %s has no device\n", path.c_str());
      return 3;
    }
    std::fputs(format_profile(profile).c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "gpupool-worker: %s: %s\n", path.c_str(), error.what());
    return 1;
  }
}

}  // namespace gpupool::worker
