// Allocation, fills and linear copies in their 32-bit forms.
#include "client/legacy_address.h"

#include "client/export.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// An address that was just allocated goes to the program, or back.
CUresult narrow_or_free(const char* function, CUdeviceptr made, CUdeviceptr_v1* out) {
  if (made <= UINT32_MAX) {
    *out = static_cast<CUdeviceptr_v1>(made);
    return CUDA_SUCCESS;
  }
  static_cast<void>(cuMemFree_v2(made));
  remember_legacy(function);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

std::uint64_t area(unsigned width, unsigned height) {
  return std::uint64_t{width} * height;
}

}  // namespace

extern "C" {

GPUPOOL_EXPORT CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  std::size_t all = 0;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuDeviceTotalMem_v2(&all, dev);
  if (result == CUDA_SUCCESS) *bytes = legacy_size(all);
  return result;
}
GPUPOOL_EXPORT CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  std::size_t free_now = 0, all = 0;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemGetInfo_v2(&free_now, &all);
  if (result != CUDA_SUCCESS) return result;
  *free = legacy_size(free_now);
  *total = legacy_size(all);
  return CUDA_SUCCESS;
}
GPUPOOL_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  CUdeviceptr made = 0;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemAlloc_v2(&made, bytesize);
  return result == CUDA_SUCCESS ? narrow_or_free("cuMemAlloc", made, dptr) : result;
}
GPUPOOL_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                                        unsigned int Height, unsigned int ElementSizeBytes) {
  CUdeviceptr made = 0;
  std::size_t pitch = 0;
  if (dptr == nullptr || pPitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemAllocPitch_v2(&made, &pitch, WidthInBytes, Height, ElementSizeBytes);
  if (result != CUDA_SUCCESS) return result;
  *pPitch = legacy_size(pitch);
  return narrow_or_free("cuMemAllocPitch", made, dptr);
}
GPUPOOL_EXPORT CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  return cuMemFree_v2(dptr);
}
GPUPOOL_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr_v1* pbase, unsigned int* psize,
                                             CUdeviceptr_v1 dptr) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult result = cuMemGetAddressRange_v2(&base, &size, dptr);
  if (result != CUDA_SUCCESS) return result;
  if (pbase != nullptr) *pbase = static_cast<CUdeviceptr_v1>(base);
  if (psize != nullptr) *psize = legacy_size(size);
  return CUDA_SUCCESS;
}
GPUPOOL_EXPORT CUresult cuMemAllocHost(void** pp, unsigned int bytesize) {
  return cuMemAllocHost_v2(pp, bytesize);
}
GPUPOOL_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1* pdptr, void* p, unsigned int Flags) {
  CUdeviceptr address = 0;
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemHostGetDevicePointer_v2(&address, p, Flags);
  if (result != CUDA_SUCCESS) return result;
  if (address > UINT32_MAX) {
    remember_legacy("cuMemHostGetDevicePointer");
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pdptr = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}
GPUPOOL_EXPORT CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                                          const char* name) {
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult result = cuModuleGetGlobal_v2(&address, &size, hmod, name);
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr && address > UINT32_MAX) {
    remember_legacy("cuModuleGetGlobal");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (dptr != nullptr) *dptr = static_cast<CUdeviceptr_v1>(address);
  if (bytes != nullptr) *bytes = legacy_size(size);
  return CUDA_SUCCESS;
}

GPUPOOL_EXPORT CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount) {
  return with_legacy_addresses("cuMemcpyHtoD", {dstDevice}, ByteCount,
                               [&] { return cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount); });
}
GPUPOOL_EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void* srcHost,
                                          unsigned int ByteCount, CUstream hStream) {
  return with_legacy_addresses("cuMemcpyHtoDAsync", {dstDevice}, ByteCount,
                               [&] { return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream); });
}
GPUPOOL_EXPORT CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
  return with_legacy_addresses("cuMemcpyDtoH", {srcDevice}, ByteCount,
                               [&] { return cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount); });
}
GPUPOOL_EXPORT CUresult cuMemcpyDtoHAsync(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
                                          CUstream hStream) {
  return with_legacy_addresses("cuMemcpyDtoHAsync", {srcDevice}, ByteCount,
                               [&] { return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream); });
}
GPUPOOL_EXPORT CUresult cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
                                     unsigned int ByteCount) {
  return with_legacy_addresses("cuMemcpyDtoD", {dstDevice, srcDevice}, ByteCount,
                               [&] { return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount); });
}
GPUPOOL_EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
                                          unsigned int ByteCount, CUstream hStream) {
  return with_legacy_addresses("cuMemcpyDtoDAsync", {dstDevice, srcDevice}, ByteCount, [&] {
    return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
  });
}

GPUPOOL_EXPORT CUresult cuMemsetD8(CUdeviceptr_v1 dstDevice, unsigned char uc, unsigned int N) {
  return with_legacy_addresses("cuMemsetD8", {dstDevice}, N, [&] { return cuMemsetD8_v2(dstDevice, uc, N); });
}
GPUPOOL_EXPORT CUresult cuMemsetD16(CUdeviceptr_v1 dstDevice, unsigned short us, unsigned int N) {
  return with_legacy_addresses("cuMemsetD16", {dstDevice}, N,
                               [&] { return cuMemsetD16_v2(dstDevice, us, N); });
}
GPUPOOL_EXPORT CUresult cuMemsetD32(CUdeviceptr_v1 dstDevice, unsigned int ui, unsigned int N) {
  return with_legacy_addresses("cuMemsetD32", {dstDevice}, N,
                               [&] { return cuMemsetD32_v2(dstDevice, ui, N); });
}
GPUPOOL_EXPORT CUresult cuMemsetD2D8(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned char uc,
                                     unsigned int Width, unsigned int Height) {
  return with_legacy_addresses("cuMemsetD2D8", {dstDevice}, area(Width, Height),
                               [&] { return cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height); });
}
GPUPOOL_EXPORT CUresult cuMemsetD2D16(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned short us,
                                      unsigned int Width, unsigned int Height) {
  return with_legacy_addresses("cuMemsetD2D16", {dstDevice}, area(Width, Height),
                               [&] { return cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height); });
}
GPUPOOL_EXPORT CUresult cuMemsetD2D32(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned int ui,
                                      unsigned int Width, unsigned int Height) {
  return with_legacy_addresses("cuMemsetD2D32", {dstDevice}, area(Width, Height),
                               [&] { return cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height); });
}

}  // extern "C"
