// Arrays, their copies, and texture references in their 32-bit forms.
#include "client/legacy_address.h"

#include "client/export.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

bool misses(CUmemorytype type, CUdeviceptr_v1 address) {
  return type == CU_MEMORYTYPE_DEVICE && !is_device_address(address);
}

template <class Old>
CUresult check_sides(const char* function, const Old& old) {
  if (!misses(old.srcMemoryType, old.srcDevice) && !misses(old.dstMemoryType, old.dstDevice)) {
    return CUDA_SUCCESS;
  }
  remember_legacy(function);
  return CUDA_ERROR_INVALID_VALUE;
}

/// What the two- and the three-dimensional copies have in common.
template <class New, class Old>
New widened(const Old& old) {
  New wide{};
  wide.srcXInBytes = old.srcXInBytes;
  wide.srcY = old.srcY;
  wide.srcMemoryType = old.srcMemoryType;
  wide.srcHost = old.srcHost;
  wide.srcDevice = old.srcDevice;
  wide.srcArray = old.srcArray;
  wide.srcPitch = old.srcPitch;
  wide.dstXInBytes = old.dstXInBytes;
  wide.dstY = old.dstY;
  wide.dstMemoryType = old.dstMemoryType;
  wide.dstHost = old.dstHost;
  wide.dstDevice = old.dstDevice;
  wide.dstArray = old.dstArray;
  wide.dstPitch = old.dstPitch;
  wide.WidthInBytes = old.WidthInBytes;
  wide.Height = old.Height;
  return wide;
}

CUDA_MEMCPY3D widened_3d(const CUDA_MEMCPY3D_v1& old) {
  CUDA_MEMCPY3D wide = widened<CUDA_MEMCPY3D>(old);
  wide.srcZ = old.srcZ;
  wide.srcLOD = old.srcLOD;
  wide.srcHeight = old.srcHeight;
  wide.dstZ = old.dstZ;
  wide.dstLOD = old.dstLOD;
  wide.dstHeight = old.dstHeight;
  wide.Depth = old.Depth;
  return wide;
}

}  // namespace

extern "C" {

GPUPOOL_EXPORT CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_sides("cuMemcpy2D", *pCopy); bad != CUDA_SUCCESS) return bad;
  const auto wide = widened<CUDA_MEMCPY2D>(*pCopy);
  return cuMemcpy2D_v2(&wide);
}
GPUPOOL_EXPORT CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* pCopy) {
  return cuMemcpy2D(pCopy);
}
GPUPOOL_EXPORT CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_sides("cuMemcpy2DAsync", *pCopy); bad != CUDA_SUCCESS) return bad;
  const auto wide = widened<CUDA_MEMCPY2D>(*pCopy);
  return cuMemcpy2DAsync_v2(&wide, hStream);
}
GPUPOOL_EXPORT CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_sides("cuMemcpy3D", *pCopy); bad != CUDA_SUCCESS) return bad;
  const CUDA_MEMCPY3D wide = widened_3d(*pCopy);
  return cuMemcpy3D_v2(&wide);
}
GPUPOOL_EXPORT CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_sides("cuMemcpy3DAsync", *pCopy); bad != CUDA_SUCCESS) return bad;
  const CUDA_MEMCPY3D wide = widened_3d(*pCopy);
  return cuMemcpy3DAsync_v2(&wide, hStream);
}

GPUPOOL_EXPORT CUresult cuMemcpyAtoA(CUarray dstArray, unsigned int dstOffset, CUarray srcArray,
                                     unsigned int srcOffset, unsigned int ByteCount) {
  return cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
GPUPOOL_EXPORT CUresult cuMemcpyAtoD(CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
                                     unsigned int ByteCount) {
  return with_legacy_addresses("cuMemcpyAtoD", {dstDevice}, ByteCount,
                               [&] { return cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount); });
}
GPUPOOL_EXPORT CUresult cuMemcpyDtoA(CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
                                     unsigned int ByteCount) {
  return with_legacy_addresses("cuMemcpyDtoA", {srcDevice}, ByteCount,
                               [&] { return cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount); });
}
GPUPOOL_EXPORT CUresult cuMemcpyAtoH(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                                     unsigned int ByteCount) {
  return cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
}
GPUPOOL_EXPORT CUresult cuMemcpyAtoHAsync(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                                          unsigned int ByteCount, CUstream hStream) {
  return cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}
GPUPOOL_EXPORT CUresult cuMemcpyHtoA(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                                     unsigned int ByteCount) {
  return cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
}
GPUPOOL_EXPORT CUresult cuMemcpyHtoAAsync(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                                          unsigned int ByteCount, CUstream hStream) {
  return cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

GPUPOOL_EXPORT CUresult cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY_DESCRIPTOR wide{pAllocateArray->Width, pAllocateArray->Height, pAllocateArray->Format,
                                   pAllocateArray->NumChannels};
  return cuArrayCreate_v2(pHandle, &wide);
}
GPUPOOL_EXPORT CUresult cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR wide{pAllocateArray->Width,       pAllocateArray->Height,
                                     pAllocateArray->Depth,       pAllocateArray->Format,
                                     pAllocateArray->NumChannels, pAllocateArray->Flags};
  return cuArray3DCreate_v2(pHandle, &wide);
}
GPUPOOL_EXPORT CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY_DESCRIPTOR wide{};
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuArrayGetDescriptor_v2(&wide, hArray);
  if (result == CUDA_SUCCESS) {
    *pArrayDescriptor = {legacy_size(wide.Width), legacy_size(wide.Height), wide.Format, wide.NumChannels};
  }
  return result;
}
GPUPOOL_EXPORT CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuArray3DGetDescriptor_v2(&wide, hArray);
  if (result == CUDA_SUCCESS) {
    *pArrayDescriptor = {legacy_size(wide.Width), legacy_size(wide.Height),
                         legacy_size(wide.Depth), wide.Format,
                         wide.NumChannels,        wide.Flags};
  }
  return result;
}

GPUPOOL_EXPORT CUresult cuTexRefSetAddress(unsigned int* ByteOffset, CUtexref hTexRef, CUdeviceptr_v1 dptr,
                                           unsigned int bytes) {
  return with_legacy_addresses("cuTexRefSetAddress", {dptr}, bytes, [&] {
    std::size_t offset = 0;
    const CUresult result = cuTexRefSetAddress_v2(&offset, hTexRef, dptr, bytes);
    if (result == CUDA_SUCCESS && ByteOffset != nullptr) *ByteOffset = legacy_size(offset);
    return result;
  });
}
GPUPOOL_EXPORT CUresult cuTexRefSetAddress2D(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR_v1* desc,
                                             CUdeviceptr_v1 dptr, unsigned int Pitch) {
  if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_legacy_addresses("cuTexRefSetAddress2D", {dptr}, Pitch, [&] {
    const CUDA_ARRAY_DESCRIPTOR wide{desc->Width, desc->Height, desc->Format, desc->NumChannels};
    return cuTexRefSetAddress2D_v3(hTexRef, &wide, dptr, Pitch);
  });
}
GPUPOOL_EXPORT CUresult cuTexRefGetAddress(CUdeviceptr_v1* pdptr, CUtexref hTexRef) {
  CUdeviceptr address = 0;
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuTexRefGetAddress_v2(&address, hTexRef);
  if (result != CUDA_SUCCESS) return result;
  if (address > UINT32_MAX) {
    remember_legacy("cuTexRefGetAddress");
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pdptr = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}

}  // extern "C"
