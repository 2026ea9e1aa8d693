#include "softgpu/driver/base/unsupported.h"

#include <cstdio>
#include <set>
#include <string>

#include "base/mutex.h"
#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

CUresult not_supported(const char* function) noexcept {
  try {
    static gpupool::Mutex mutex;
    static std::set<std::string> told;
    const gpupool::MutexLock lock(mutex);
    if (told.insert(function).second) {
      std::fprintf(stderr, "%s: %s is not supported\n", driver_identity.log_name, function);
    }
  } catch (...) {
    // Out of memory for a log line: the result still says it.
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace softgpu::driver
