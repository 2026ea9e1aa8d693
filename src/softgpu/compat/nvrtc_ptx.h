// NVRTC's functions with machine code replaced by PTX, over whichever copy of NVRTC is given.
#pragma once

#include <cstddef>

namespace gpupool::compat {

using NvrtcProgram = void*;               // nvrtcProgram, opaque
constexpr int nvrtc_internal_error = 11;  // NVRTC_ERROR_INTERNAL_ERROR

using NvrtcCompile = int (*)(NvrtcProgram, int, const char* const*);
using NvrtcDestroy = int (*)(NvrtcProgram*);
using NvrtcSize = int (*)(NvrtcProgram, std::size_t*);
using NvrtcCode = int (*)(NvrtcProgram, char*);

/// The functions of one copy of NVRTC; null where it has none.
struct NvrtcFunctions {
  NvrtcCompile compile = nullptr;
  NvrtcDestroy destroy = nullptr;
  NvrtcSize cubin_size = nullptr;
  NvrtcCode cubin = nullptr;
  NvrtcSize ptx_size = nullptr;
  NvrtcCode ptx = nullptr;
};

/// dlsym, past the replacements that this library's own dlsym hands out.
void* real_symbol(void* library, const char* name);

int compile_to_ptx(const NvrtcFunctions& library, NvrtcProgram program, int count,
                   const char* const* options);
int destroy_program(const NvrtcFunctions& library, NvrtcProgram* program);
int code_size(const NvrtcFunctions& library, NvrtcProgram program, std::size_t* size);
int code(const NvrtcFunctions& library, NvrtcProgram program, char* bytes);

}  // namespace gpupool::compat
