// Preloaded into programs that run on the software GPU: a program that asks NVRTC for machine code of a real
// architecture gets the PTX of the virtual one in its place, and the driver accepts it in its place too.
#include "softgpu/compat/nvrtc_ptx.h"

#include <dlfcn.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace gpupool::compat {
namespace {

/// Programs whose machine code was replaced.
class Replaced {
 public:
  void set(NvrtcProgram program, bool yes) {
    const MutexLock lock(mutex_);
    if (yes) {
      programs_.insert(program);
    } else {
      programs_.erase(program);
    }
  }
  bool has(NvrtcProgram program) {
    const MutexLock lock(mutex_);
    return programs_.count(program) != 0;
  }

 private:
  Mutex mutex_;
  std::set<NvrtcProgram> programs_ GUARDED_BY(mutex_);
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

NvrtcFunctions functions_in(void* library) {
  const auto find = [library]<class Function>(Function& into, const char* name) {
    into = reinterpret_cast<Function>(real_symbol(library, name));
  };
  NvrtcFunctions found;
  find(found.compile, "nvrtcCompileProgram");
  find(found.destroy, "nvrtcDestroyProgram");
  find(found.cubin_size, "nvrtcGetCUBINSize");
  find(found.cubin, "nvrtcGetCUBIN");
  find(found.ptx_size, "nvrtcGetPTXSize");
  find(found.ptx, "nvrtcGetPTX");
  return found;
}

/// The NVRTC that the caller was linked with. A program's own stands behind this library in the order of the
/// loader; that of a library which the program has opened, such as an extension module of Python, is among
/// what it needs.
const NvrtcFunctions& linked(const void* caller) {
  static const NvrtcFunctions of_program = functions_in(RTLD_NEXT);
  if (of_program.compile != nullptr) return of_program;
  static Mutex mutex;
  static auto* const by_library = new std::map<const void*, NvrtcFunctions>;  // as long as the process
  Dl_info info{};
  if (dladdr(caller, &info) == 0) return of_program;
  const MutexLock lock(mutex);
  const auto known = by_library->find(info.dli_fbase);
  if (known != by_library->end()) return known->second;
  void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return of_program;
  return by_library->emplace(info.dli_fbase, functions_in(library)).first->second;
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
  return compile_to_ptx(linked(__builtin_return_address(0)), program, count, options);
}

GPUPOOL_EXPORT int nvrtcDestroyProgram(NvrtcProgram* program) {
  return destroy_program(linked(__builtin_return_address(0)), program);
}

GPUPOOL_EXPORT int nvrtcGetCUBINSize(NvrtcProgram program, std::size_t* size) {
  return code_size(linked(__builtin_return_address(0)), program, size);
}

GPUPOOL_EXPORT int nvrtcGetCUBIN(NvrtcProgram program, char* bytes) {
  return code(linked(__builtin_return_address(0)), program, bytes);
}
