// Arrays and mipmapped arrays, and the copies of one-dimensional arrays.
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

namespace {

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return entry([&] {
    require(handle != nullptr);
    *handle = registry<Array>().add<CUarray>(Array::create(current_context(), shape));
  });
}

CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return entry([&] {
    require(shape != nullptr);
    *shape = registry<Array>().get(handle)->shape();
  });
}

CUDA_MEMCPY3D row(std::size_t bytes) {
  CUDA_MEMCPY3D shape{};
  shape.WidthInBytes = bytes;
  shape.Height = shape.Depth = 1;
  return shape;
}
void from_array(CUDA_MEMCPY3D& shape, CUarray array, std::size_t offset) {
  shape.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.srcArray = array;
  shape.srcXInBytes = offset;
}
void to_array(CUDA_MEMCPY3D& shape, CUarray array, std::size_t offset) {
  shape.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.dstArray = array;
  shape.dstXInBytes = offset;
}
CUDA_MEMCPY3D host_to_array(CUarray array, std::size_t offset, const void* host, std::size_t bytes) {
  CUDA_MEMCPY3D shape = row(bytes);
  to_array(shape, array, offset);
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = host;
  return shape;
}
CUDA_MEMCPY3D array_to_host(void* host, CUarray array, std::size_t offset, std::size_t bytes) {
  CUDA_MEMCPY3D shape = row(bytes);
  from_array(shape, array, offset);
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = host;
  return shape;
}

}  // namespace

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return pAllocateArray ? create(pHandle, *pAllocateArray) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (!pAllocateArray) return CUDA_ERROR_INVALID_VALUE;
  return create(pHandle, {pAllocateArray->Width, pAllocateArray->Height, 0, pAllocateArray->Format,
                          pAllocateArray->NumChannels, 0});
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return describe(hArray, pArrayDescriptor);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  if (!pArrayDescriptor) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  const CUresult result = describe(hArray, &shape);
  if (result == CUDA_SUCCESS) {
    *pArrayDescriptor = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
  }
  return result;
}

CUresult cuArrayDestroy(CUarray hArray) {
  return entry([&] {
    Registry<Array>& arrays = registry<Array>();
    require(!arrays.get(hArray)->is_level(), CUDA_ERROR_INVALID_HANDLE);
    const auto array = arrays.take(hArray);
    array->context().synchronize();  // a copy may still use it
  });
}

// There are no arrays of planes and none whose memory comes later, so these have nothing to tell.
CUresult cuArrayGetPlane(CUarray*, CUarray hArray, unsigned int) {
  return entry([&] {
    registry<Array>().get(hArray);
    fail(CUDA_ERROR_INVALID_VALUE);
  });
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return cuArrayGetPlane(nullptr, array, 0);
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return cuArrayGetPlane(nullptr, array, 0);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return entry([&] {
    require(pHandle && pMipmappedArrayDesc);
    auto made = std::make_shared<MipmappedArray>(current_context(), *pMipmappedArrayDesc, numMipmapLevels);
    for (const auto& level : made->levels()) registry<Array>().add<CUarray>(level);
    *pHandle = registry<MipmappedArray>().add<CUmipmappedArray>(std::move(made));
  });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return entry([&] {
    const auto array = registry<MipmappedArray>().take(hMipmappedArray);
    for (const auto& level : array->levels()) registry<Array>().take(level.get());
    array->context().synchronize();
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  return entry([&] {
    const auto array = registry<MipmappedArray>().get(hMipmappedArray);
    require(pLevelArray && level < array->levels().size());
    *pLevelArray = reinterpret_cast<CUarray>(array->levels()[level].get());
  });
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray mipmap,
                                               CUdevice) {
  return entry([&] {
    registry<MipmappedArray>().get(mipmap);
    fail(CUDA_ERROR_INVALID_VALUE);
  });
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray mipmap) {
  return cuMipmappedArrayGetMemoryRequirements(nullptr, mipmap, 0);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  CUDA_MEMCPY3D shape = row(ByteCount);
  from_array(shape, srcArray, srcOffset);
  to_array(shape, dstArray, dstOffset);
  return cuMemcpy3D_v2(&shape);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  CUDA_MEMCPY3D shape = row(ByteCount);
  from_array(shape, srcArray, srcOffset);
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = dstDevice;
  return cuMemcpy3D_v2(&shape);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
  CUDA_MEMCPY3D shape = row(ByteCount);
  to_array(shape, dstArray, dstOffset);
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = srcDevice;
  return cuMemcpy3D_v2(&shape);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount) {
  const CUDA_MEMCPY3D shape = host_to_array(dstArray, dstOffset, srcHost, ByteCount);
  return cuMemcpy3D_v2(&shape);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  const CUDA_MEMCPY3D shape = host_to_array(dstArray, dstOffset, srcHost, ByteCount);
  return cuMemcpy3DAsync_v2(&shape, hStream);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  const CUDA_MEMCPY3D shape = array_to_host(dstHost, srcArray, srcOffset, ByteCount);
  return cuMemcpy3D_v2(&shape);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  const CUDA_MEMCPY3D shape = array_to_host(dstHost, srcArray, srcOffset, ByteCount);
  return cuMemcpy3DAsync_v2(&shape, hStream);
}
