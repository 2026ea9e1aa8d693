// Preloaded into programs that run on the software GPU: a program that asks NVRTC for machine code of a real
// architecture gets the PTX of the virtual one in its place, and the driver accepts it in its place too.
#include "softgpu/compat/nvrtc_ptx.h"

#include <dlfcn.h>

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::compat {
namespace {

/// The function of that name in the real library behind this one; null when there is none.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Programs whose machine code was replaced.
class Replaced {
 public:
  void set(NvrtcProgram program, bool yes) {
    const std::lock_guard lock(mutex_);
    if (yes) {
      programs_.insert(program);
    } else {
      programs_.erase(program);
    }
  }
  bool has(NvrtcProgram program) {
    const std::lock_guard lock(mutex_);
    return programs_.count(program) != 0;
  }

 private:
  std::mutex mutex_;
  std::set<NvrtcProgram> programs_;
};

Replaced& replaced() {
  static Replaced* const all = new Replaced;  // programs may be destroyed while the process ends
  return *all;
}

/// `-arch=sm_120` -> `-arch=compute_120`; also the value of a separate `-arch`. False when nothing changed.
bool to_virtual(std::string& option, bool is_value) {
  std::size_t at = 0;
  if (!is_value) {
    const std::string_view text(option);
    if (!text.starts_with("-arch=") && !text.starts_with("--gpu-architecture=")) return false;
    at = text.find('=') + 1;
  }
  if (option.compare(at, 3, "sm_") != 0) return false;
  option.replace(at, 3, "compute_");
  return true;
}

bool takes_architecture(std::string_view option) {
  return option == "-arch" || option == "--gpu-architecture";
}

/// The library behind this one, for programs that are linked with NVRTC.
const NvrtcFunctions& linked() {
  static const NvrtcFunctions functions{
      next<NvrtcCompile>("nvrtcCompileProgram"), next<NvrtcDestroy>("nvrtcDestroyProgram"),
      next<NvrtcSize>("nvrtcGetCUBINSize"),      next<NvrtcCode>("nvrtcGetCUBIN"),
      next<NvrtcSize>("nvrtcGetPTXSize"),        next<NvrtcCode>("nvrtcGetPTX")};
  return functions;
}

}  // namespace

int compile_to_ptx(const NvrtcFunctions& library, NvrtcProgram program, int count,
                   const char* const* options) {
  if (library.compile == nullptr) return nvrtc_internal_error;
  if (count <= 0 || options == nullptr) return library.compile(program, count, options);
  std::vector<std::string> texts(options, options + count);
  bool changed = false;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const bool value = n > 0 && takes_architecture(texts[n - 1]);
    changed = to_virtual(texts[n], value) || changed;
  }
  std::vector<const char*> pointers;
  for (const auto& text : texts) pointers.push_back(text.c_str());
  replaced().set(program, changed);
  return library.compile(program, count, pointers.data());
}

int destroy_program(const NvrtcFunctions& library, NvrtcProgram* program) {
  if (library.destroy == nullptr) return nvrtc_internal_error;
  if (program != nullptr) replaced().set(*program, false);
  return library.destroy(program);
}

int code_size(const NvrtcFunctions& library, NvrtcProgram program, std::size_t* size) {
  const auto get = replaced().has(program) ? library.ptx_size : library.cubin_size;
  return get != nullptr ? get(program, size) : nvrtc_internal_error;
}

int code(const NvrtcFunctions& library, NvrtcProgram program, char* bytes) {
  const auto get = replaced().has(program) ? library.ptx : library.cubin;
  return get != nullptr ? get(program, bytes) : nvrtc_internal_error;
}

}  // namespace gpupool::compat

#define GPUPOOL_EXPORT extern "C" __attribute__((visibility("default")))

using namespace gpupool::compat;

GPUPOOL_EXPORT int nvrtcCompileProgram(NvrtcProgram program, int count, const char* const* options) {
  return compile_to_ptx(linked(), program, count, options);
}

GPUPOOL_EXPORT int nvrtcDestroyProgram(NvrtcProgram* program) {
  return destroy_program(linked(), program);
}

GPUPOOL_EXPORT int nvrtcGetCUBINSize(NvrtcProgram program, std::size_t* size) {
  return code_size(linked(), program, size);
}

GPUPOOL_EXPORT int nvrtcGetCUBIN(NvrtcProgram program, char* bytes) {
  return code(linked(), program, bytes);
}
