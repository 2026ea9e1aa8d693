// Preloaded into programs that run on the software GPU: a program that asks NVRTC for machine code of a real
// architecture gets the PTX of the virtual one in its place, and the driver accepts it in its place too.
//
// Programs that look NVRTC up by dlsym are not reached; those of Python choose PTX by themselves.
#include <dlfcn.h>

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Program = void*;              // nvrtcProgram, opaque
constexpr int internal_error = 11;  // NVRTC_ERROR_INTERNAL_ERROR

/// The function of that name in the real library behind this one; null when there is none.
template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Programs whose machine code was replaced.
class Replaced {
 public:
  void set(Program program, bool yes) {
    const std::lock_guard lock(mutex_);
    if (yes) {
      programs_.insert(program);
    } else {
      programs_.erase(program);
    }
  }
  bool has(Program program) {
    const std::lock_guard lock(mutex_);
    return programs_.count(program) != 0;
  }

 private:
  std::mutex mutex_;
  std::set<Program> programs_;
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

}  // namespace

#define GPUPOOL_EXPORT extern "C" __attribute__((visibility("default")))

GPUPOOL_EXPORT int nvrtcCompileProgram(Program program, int count, const char* const* options) {
  const auto compile = real<int (*)(Program, int, const char* const*)>("nvrtcCompileProgram");
  if (compile == nullptr) return internal_error;
  if (count <= 0 || options == nullptr) return compile(program, count, options);
  std::vector<std::string> texts(options, options + count);
  bool changed = false;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const bool value = n > 0 && takes_architecture(texts[n - 1]);
    changed = to_virtual(texts[n], value) || changed;
  }
  std::vector<const char*> pointers;
  for (const auto& text : texts) pointers.push_back(text.c_str());
  replaced().set(program, changed);
  return compile(program, count, pointers.data());
}

GPUPOOL_EXPORT int nvrtcDestroyProgram(Program* program) {
  const auto destroy = real<int (*)(Program*)>("nvrtcDestroyProgram");
  if (destroy == nullptr) return internal_error;
  if (program != nullptr) replaced().set(*program, false);
  return destroy(program);
}

GPUPOOL_EXPORT int nvrtcGetCUBINSize(Program program, std::size_t* size) {
  const char* const name = replaced().has(program) ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize";
  const auto get = real<int (*)(Program, std::size_t*)>(name);
  return get != nullptr ? get(program, size) : internal_error;
}

GPUPOOL_EXPORT int nvrtcGetCUBIN(Program program, char* code) {
  const char* const name = replaced().has(program) ? "nvrtcGetPTX" : "nvrtcGetCUBIN";
  const auto get = real<int (*)(Program, char*)>(name);
  return get != nullptr ? get(program, code) : internal_error;
}
