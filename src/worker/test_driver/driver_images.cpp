// The test driver's modules, links and kernels: it reads what a driver would read.
#include <cuda.h>

#include <cstring>
#include <set>

#include "worker/test_driver/driver_state.h"

using namespace test_driver;

namespace {

/// What drivers do with a fat binary's wrapper: they follow the address in it.
void read_image(const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic != 0x466243b1) return;
  const volatile char* address = nullptr;
  std::memcpy(&address, static_cast<const char*>(image) + 8, sizeof(address));
  static_cast<void>(*address);
}
/// Writes every log to the last byte that its options allow.
void fill_logs(unsigned count, const CUjit_option* options, void** values) {
  char* buffer = nullptr;
  unsigned size = 0;
  for (unsigned n = 0; n < count; ++n) {
    if (options[n] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[n]);
    if (options[n] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      size = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[n]));
    }
  }
  if (buffer == nullptr || size == 0) return;
  std::memset(buffer, 'e', size - 1);
  buffer[size - 1] = '\0';
}

std::set<CUfunction>& loaded_functions() {
  static std::set<CUfunction> loaded;
  return loaded;
}

}  // namespace

EXPORT cuModuleLoadDataEx(CUmodule* m, const void* image, unsigned count, CUjit_option* options,
                          void** values) {
  const std::unique_lock lock(driver_mutex());
  read_image(image);
  fill_logs(count, options, values);
  return std::strlen(static_cast<const char*>(image)) % 2 == 0 ? make(m) : CUDA_ERROR_INVALID_IMAGE;
}
EXPORT cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  const std::unique_lock lock(driver_mutex());
  fill_logs(count, options, values);
  return make(state);
}
EXPORT cuLinkAddData_v2(CUlinkState state, CUjitInputType, void* data, size_t, const char*, unsigned count,
                        CUjit_option* options, void** values) {
  const std::unique_lock lock(driver_mutex());
  must_know(state);
  read_image(data);
  fill_logs(count, options, values);
  return CUDA_SUCCESS;
}
EXPORT cuLinkDestroy(CUlinkState state) {
  const std::unique_lock lock(driver_mutex());
  return end(state);
}
EXPORT cuModuleUnload(CUmodule m) {
  const std::unique_lock lock(driver_mutex());
  return end(m);
}
EXPORT cuModuleGetFunctionCount(unsigned* n, CUmodule m) {
  const std::unique_lock lock(driver_mutex());
  must_know(m);
  *n = 2;
  return CUDA_SUCCESS;
}
EXPORT cuModuleEnumerateFunctions(CUfunction* f, unsigned n, CUmodule m) {
  const std::unique_lock lock(driver_mutex());
  must_know(m);
  for (unsigned k = 0; k < n; ++k) make(&f[k]);
  return CUDA_SUCCESS;
}
EXPORT cuFuncGetName(const char** name, CUfunction f) {
  const std::unique_lock lock(driver_mutex());
  must_know(f);
  *name = "kernel";
  return CUDA_SUCCESS;
}
/// As a lazy driver: what it lists is not loaded.
EXPORT cuFuncLoad(CUfunction f) {
  const std::unique_lock lock(driver_mutex());
  must_know(f);
  loaded_functions().insert(f);
  return CUDA_SUCCESS;
}
EXPORT cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction f) {
  const std::unique_lock lock(driver_mutex());
  must_know(f);
  const bool of_loaded = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
                         attribute == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES ||
                         attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (of_loaded && loaded_functions().count(f) == 0) return CUDA_ERROR_FUNCTION_NOT_LOADED;
  *value = 100 + attribute;
  return CUDA_SUCCESS;
}
EXPORT cuFuncGetParamInfo(CUfunction f, size_t index, size_t* offset, size_t* size) {
  const std::unique_lock lock(driver_mutex());
  must_know(f);
  *offset = index * 8;
  *size = 8;
  return index < 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORT cuLaunchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      CUstream s, void** parameters, void**) {
  const std::unique_lock lock(driver_mutex());
  must_know(f);
  must_know_stream(s);
  unsigned char sum = 0;  // reads what a driver would read
  for (int p = 0; p < 3; ++p)
    for (int n = 0; n < 8; ++n)
      sum = static_cast<unsigned char>(sum + static_cast<unsigned char*>(parameters[p])[n]);
  return sum == 255 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}
