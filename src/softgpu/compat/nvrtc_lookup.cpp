// dlsym for programs that open NVRTC by themselves, as cuda-python does: a function that hands out machine
// code is found in its form that hands out PTX; every other name is the loader's business.
//
// The loader answers RTLD_NEXT by the address that dlsym returns to, so what is not replaced must reach the
// real dlsym by a jump, not a call. Hence the assembly at the end.
#if defined(__x86_64__)

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "softgpu/compat/nvrtc_ptx.h"

extern "C" {
using LookUp = void* (*)(void* handle, const char* name);
extern __attribute__((visibility("hidden"))) std::atomic<LookUp> gpupool_real_dlsym;
std::atomic<LookUp> gpupool_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* gpupool_find_replacement(void* handle, const char* name);
}

namespace gpupool::compat {
namespace {

/// Copies of NVRTC in one process: one for each version of CUDA, rarely more.
constexpr std::size_t max_libraries = 8;

struct Found {
  const void* base = nullptr;
  NvrtcFunctions functions;
};

std::array<Found, max_libraries>& libraries() {
  static std::array<Found, max_libraries> all;
  return all;
}

template <std::size_t slot>
struct Replacement {
  static const NvrtcFunctions& library() { return libraries()[slot].functions; }
  static int compile(NvrtcProgram program, int count, const char* const* options) {
    return compile_to_ptx(library(), program, count, options);
  }
  static int destroy(NvrtcProgram* program) { return destroy_program(library(), program); }
  static int size(NvrtcProgram program, std::size_t* bytes) { return code_size(library(), program, bytes); }
  static int bytes(NvrtcProgram program, char* to) { return code(library(), program, to); }
};

enum class Name { compile, destroy, size, bytes, other };

Name name_of(std::string_view name) {
  if (name == "nvrtcCompileProgram") return Name::compile;
  if (name == "nvrtcDestroyProgram") return Name::destroy;
  if (name == "nvrtcGetCUBINSize") return Name::size;
  if (name == "nvrtcGetCUBIN") return Name::bytes;
  return Name::other;
}

template <std::size_t slot>
void* replacement(Name name) {
  switch (name) {
    case Name::compile:
      return reinterpret_cast<void*>(&Replacement<slot>::compile);
    case Name::destroy:
      return reinterpret_cast<void*>(&Replacement<slot>::destroy);
    case Name::size:
      return reinterpret_cast<void*>(&Replacement<slot>::size);
    case Name::bytes:
      return reinterpret_cast<void*>(&Replacement<slot>::bytes);
    case Name::other:
      break;
  }
  return nullptr;
}

template <std::size_t... slots>
void* replacement_in(std::size_t slot, Name name, std::index_sequence<slots...>) {
  void* found = nullptr;
  ((slot == slots ? void(found = replacement<slots>(name)) : void()), ...);
  return found;
}

template <class Function>
Function look_up(LookUp real, void* handle, const char* name) {
  return reinterpret_cast<Function>(real(handle, name));
}

const void* base_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

/// The slot of the library that `function` lies in; max_libraries when it is none that can be replaced.
std::size_t slot_of(LookUp real, void* handle, const void* function) {
  static Mutex mutex;
  const void* const base = base_of(function);
  const void* const ours = base_of(reinterpret_cast<const void*>(&gpupool_find_replacement));
  if (base == nullptr || base == ours) return max_libraries;
  const MutexLock lock(mutex);
  auto& all = libraries();
  for (std::size_t slot = 0; slot < max_libraries; ++slot) {
    if (all[slot].base == base) return slot;
    if (all[slot].base != nullptr) continue;
    all[slot].functions = {look_up<NvrtcCompile>(real, handle, "nvrtcCompileProgram"),
                           look_up<NvrtcDestroy>(real, handle, "nvrtcDestroyProgram"),
                           look_up<NvrtcSize>(real, handle, "nvrtcGetCUBINSize"),
                           look_up<NvrtcCode>(real, handle, "nvrtcGetCUBIN"),
                           look_up<NvrtcSize>(real, handle, "nvrtcGetPTXSize"),
                           look_up<NvrtcCode>(real, handle, "nvrtcGetPTX")};
    all[slot].base = base;
    return slot;
  }
  return max_libraries;
}

LookUp real_dlsym() {
  LookUp real = gpupool_real_dlsym.load(std::memory_order_acquire);
  if (real != nullptr) return real;
  for (const char* const version : {"GLIBC_2.34", "GLIBC_2.2.5"}) {
    real = reinterpret_cast<LookUp>(dlvsym(RTLD_NEXT, "dlsym", version));
    if (real != nullptr) break;
  }
  gpupool_real_dlsym.store(real, std::memory_order_release);
  return real;
}

}  // namespace

void* real_symbol(void* library, const char* name) {
  const LookUp real = real_dlsym();
  return real != nullptr ? real(library, name) : nullptr;
}

}  // namespace gpupool::compat

/// The address to hand out in place of the loader's; null: ask the loader.
void* gpupool_find_replacement(void* handle, const char* name) {
  using namespace gpupool::compat;
  const LookUp real = real_dlsym();
  if (real == nullptr || handle == RTLD_DEFAULT || handle == RTLD_NEXT || name == nullptr) return nullptr;
  if (std::strncmp(name, "nvrtc", 5) != 0) return nullptr;
  const Name wanted = name_of(name);
  if (wanted == Name::other) return nullptr;
  const void* const function = real(handle, name);
  if (function == nullptr) return nullptr;
  const std::size_t slot = slot_of(real, handle, function);
  return replacement_in(slot, wanted, std::make_index_sequence<max_libraries>());
}

asm(R"(
  .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call gpupool_find_replacement
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jne 1f
  movq gpupool_real_dlsym(%rip), %rax
  testq %rax, %rax
  je 1f
  jmp *%rax
1:
  ret
  .cfi_endproc
  .size dlsym, .-dlsym
)");

#else

#include <dlfcn.h>

#include "softgpu/compat/nvrtc_ptx.h"

void* gpupool::compat::real_symbol(void* library, const char* name) {
  return dlsym(library, name);
}

#endif
