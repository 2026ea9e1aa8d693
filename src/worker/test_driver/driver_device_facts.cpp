// What the test driver says of its devices beyond attributes.
#include <cuda.h>

#include <cstddef>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

EXPORT cuDeviceGetCliqueInfo(CUcliqueInfo* out, size_t* count, CUdevice) {
  const std::size_t room = *count;
  *count = 1;
  if (room == 0) return CUDA_ERROR_INVALID_VALUE;
  out[0] = {CU_CLIQUE_TYPE_MULTICAST_POINTER, 77};
  return CUDA_SUCCESS;
}
EXPORT cuDeviceGetLuid(char* luid, unsigned* mask, CUdevice) {
  for (int n = 0; n < 8; ++n) luid[n] = static_cast<char>('a' + n);
  *mask = 5;
  return CUDA_SUCCESS;
}
EXPORT cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary, const char* name) {
  if (std::string(name) != "managed") return CUDA_ERROR_NOT_FOUND;
  *address = 0x1234000;
  *size = 4096;
  return CUDA_SUCCESS;
}
