#include "libraries/shared/launch.h"

#include <map>
#include <mutex>
#include <string_view>

#include "libraries/shared/refusal.h"

namespace gpupool::libraries {
namespace {

/// The image in the driver, and the kernels that were asked for.
struct Loaded {
  std::mutex mutex;
  unsigned session = 0;
  CUlibrary library = nullptr;
  std::map<std::string_view, CUkernel> kernels;
};

Loaded& loaded() {
  static Loaded* const made = new Loaded;  // never destroyed: other libraries' destructors may call
  return *made;
}

CUresult load_image(const Driver& driver, Loaded& state) {
  const unsigned session = driver.session();
  if (state.library != nullptr && state.session == session) return CUDA_SUCCESS;
  state.kernels.clear();
  state.library = nullptr;
  const CUresult bad = driver.cuLibraryLoadData(&state.library, operations::image().c_str(), nullptr, nullptr,
                                                0, nullptr, nullptr, 0);
  if (bad != CUDA_SUCCESS) {
    state.library = nullptr;
    if (bad == CUDA_ERROR_INVALID_PTX || bad == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND) {
      say_once("math libraries", "this driver does not load the operations that they launch");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return bad;
  }
  state.session = session;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult kernel_of(const Driver& driver, const char* name, CUfunction& kernel) {
  Loaded& state = loaded();
  const std::lock_guard lock(state.mutex);
  if (const CUresult bad = load_image(driver, state); bad != CUDA_SUCCESS) return bad;
  CUkernel& known = state.kernels[name];
  if (known == nullptr) {
    if (const CUresult bad = driver.cuLibraryGetKernel(&known, state.library, name); bad != CUDA_SUCCESS) {
      known = nullptr;
      return bad;
    }
  }
  kernel = reinterpret_cast<CUfunction>(known);
  return CUDA_SUCCESS;
}

CUresult prepare() {
  const Driver* driver = nullptr;
  if (const CUresult bad = enter(driver); bad != CUDA_SUCCESS) return bad;
  Loaded& state = loaded();
  const std::lock_guard lock(state.mutex);
  return load_image(*driver, state);
}

CUresult launch(const char* name, const void* operation, std::uint64_t parts, CUstream stream) {
  const Driver* driver = nullptr;
  if (const CUresult bad = enter(driver); bad != CUDA_SUCCESS) return bad;
  CUfunction kernel = nullptr;
  if (const CUresult bad = kernel_of(*driver, name, kernel); bad != CUDA_SUCCESS) return bad;
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(parts, 1, operations::max_blocks));
  void* parameters[] = {const_cast<void*>(operation)};
  return driver->cuLaunchKernel(kernel, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace gpupool::libraries
