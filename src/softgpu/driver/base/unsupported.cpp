#include "softgpu/driver/base/unsupported.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

CUresult not_supported(const char* function) noexcept {
  try {
    static std::mutex mutex;
    static std::set<std::string> told;
    const std::lock_guard lock(mutex);
    if (told.insert(function).second) {
      std::fprintf(stderr, "%s: %s is not supported\n", kIdentity.log_name, function);
    }
  } catch (...) {
    // Out of memory for a log line: the result still says it.
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace softgpu::driver
