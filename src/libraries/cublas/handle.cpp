// Handles: made, ended, set and asked. No message.
#include "libraries/cublas/handle.h"

#include <cstring>

#include "libraries/cublas/scratch.h"
#include "libraries/cublas/version.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;

namespace {

/// Sets or reads one field of a handle.
template <class F>
int with_handle(void* handle, F f) {
  Handle* const found = find(handle);
  return found == nullptr ? not_initialized : static_cast<int>(f(*found));
}

template <class T>
int read(void* handle, T* into, T Handle::* field) {
  return with_handle(handle, [&](Handle& found) {
    if (into == nullptr) return invalid_value;
    *into = found.*field;
    return success;
  });
}

template <class T>
int write(void* handle, T value, T Handle::* field, bool valid = true) {
  return with_handle(handle, [&](Handle& found) {
    if (!valid) return invalid_value;
    found.*field = value;
    return success;
  });
}

/// Of cublasMath_t, beside the flag that sums are made whole: default, tensor cores, pedantic, tf32, singles
/// as nine products of bf16, doubles in fixed point.
bool is_math_mode(int mode) {
  switch (mode & ~Handle::whole_sums) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 8:
      return true;
    default:
      return false;
  }
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cublasCreate_v2(void** handle) {
  return guarded([&] {
    if (handle == nullptr) return invalid_value;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new Handle;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasDestroy_v2(void* handle) {
  return with_handle(handle, [](Handle& found) {
    found.alive = 0;
    free_result_place(found);
    delete &found;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasSetStream_v2(void* handle, CUstream stream) {
  return with_handle(handle, [&](Handle& found) {
    found.stream = stream;
    // As documented: another stream takes the program's workspace away.
    found.workspace = nullptr;
    found.workspace_bytes = 0;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cublasGetStream_v2(void* handle, CUstream* stream) {
  return read(handle, stream, &Handle::stream);
}
GPUPOOL_LIBRARY_EXPORT int cublasSetPointerMode_v2(void* handle, int mode) {
  return write(handle, mode, &Handle::pointer_mode, mode == host || mode == device);
}
GPUPOOL_LIBRARY_EXPORT int cublasGetPointerMode_v2(void* handle, int* mode) {
  return read(handle, mode, &Handle::pointer_mode);
}
GPUPOOL_LIBRARY_EXPORT int cublasSetAtomicsMode(void* handle, int mode) {
  return write(handle, mode, &Handle::atomics_mode, mode == 0 || mode == 1);
}
GPUPOOL_LIBRARY_EXPORT int cublasGetAtomicsMode(void* handle, int* mode) {
  return read(handle, mode, &Handle::atomics_mode);
}
GPUPOOL_LIBRARY_EXPORT int cublasSetMathMode(void* handle, int mode) {
  return write(handle, mode, &Handle::math_mode, is_math_mode(mode));
}
GPUPOOL_LIBRARY_EXPORT int cublasGetMathMode(void* handle, int* mode) {
  return read(handle, mode, &Handle::math_mode);
}
GPUPOOL_LIBRARY_EXPORT int cublasSetSmCountTarget(void* handle, int count) {
  return write(handle, count, &Handle::multiprocessors, count >= 0);
}
GPUPOOL_LIBRARY_EXPORT int cublasGetSmCountTarget(void* handle, int* count) {
  return read(handle, count, &Handle::multiprocessors);
}
GPUPOOL_LIBRARY_EXPORT int cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t bytes) {
  return with_handle(handle, [&](Handle& found) {
    constexpr std::uintptr_t alignment = 256;  // as documented
    if (workspace == nullptr && bytes != 0) return invalid_value;
    if (reinterpret_cast<std::uintptr_t>(workspace) % alignment != 0) return invalid_value;
    found.workspace = workspace;
    found.workspace_bytes = bytes;
    return success;
  });
}

// NVIDIA's answers without a handle too, and JAX asks so: it believes that there is no cuBLAS otherwise.
GPUPOOL_LIBRARY_EXPORT int cublasGetVersion_v2(void* /*handle*/, int* version) {
  if (version == nullptr) return invalid_value;
  *version = version_number;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(own_version, property, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT std::size_t cublasGetCudartVersion() {
  return GPUPOOL_CUDA_MAJOR * 1000;
}
GPUPOOL_LIBRARY_EXPORT const char* cublasGetStatusName(int status) {
  return name_of(status);
}
GPUPOOL_LIBRARY_EXPORT const char* cublasGetStatusString(int status) {
  return text_of(status);
}
GPUPOOL_LIBRARY_EXPORT int cublasLoggerConfigure(int, int, int, const char*) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasSetLoggerCallback(void (*)(const char*)) {
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cublasGetLoggerCallback(void (**callback)(const char*)) {
  if (callback == nullptr) return invalid_value;
  *callback = nullptr;
  return success;
}
