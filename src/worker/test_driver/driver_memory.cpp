// The test driver's memory, copies, arrays and textures.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "worker/test_driver/driver_state.h"

using namespace test_driver;

extern "C" __attribute__((visibility("default"))) size_t test_driver_read(CUdeviceptr from, std::byte* to,
                                                                          size_t room) {
  const auto& bytes = device_memory()[from];
  if (!bytes.empty()) std::memcpy(to, bytes.data(), std::min(room, bytes.size()));
  return bytes.size();
}
EXPORT cuMemAllocHost_v2(void** out, size_t size) {
  const std::unique_lock lock(driver_mutex());
  if (!test_driver_uses_pinned) return CUDA_ERROR_NOT_SUPPORTED;
  auto* const made = static_cast<std::byte*>(std::malloc(size));
  pinned()[made] = {size, current};
  *out = made;
  return CUDA_SUCCESS;
}
EXPORT cuMemFreeHost(void* memory) {
  const std::unique_lock lock(driver_mutex());
  if (pinned().erase(static_cast<std::byte*>(memory)) == 0) std::abort();
  std::free(memory);
  return CUDA_SUCCESS;
}
EXPORT cuMemGetAllocationGranularity(size_t* g, const CUmemAllocationProp*,
                                     CUmemAllocationGranularity_flags) {
  const std::unique_lock lock(driver_mutex());
  *g = 2u << 20;
  return CUDA_SUCCESS;
}
EXPORT cuMemAddressReserve(CUdeviceptr* p, size_t, size_t, CUdeviceptr wish, unsigned long long) {
  const std::unique_lock lock(driver_mutex());
  *p = wish;
  return CUDA_SUCCESS;
}
EXPORT cuMemCreate(CUmemGenericAllocationHandle* h, size_t, const CUmemAllocationProp*, unsigned long long) {
  const std::unique_lock lock(driver_mutex());
  static CUmemGenericAllocationHandle next = 0;
  *h = ++next;
  return CUDA_SUCCESS;
}
EXPORT cuMemRelease(CUmemGenericAllocationHandle) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
EXPORT cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
EXPORT cuMemUnmap(CUdeviceptr, size_t) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
EXPORT cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  const std::unique_lock lock(driver_mutex());
  return CUDA_SUCCESS;
}
namespace {
/// Every byte, so that a checker of memory sees it.
CUresult read(const void* from, size_t size) {
  std::set<unsigned char> seen;
  for (size_t n = 0; n < size; ++n) seen.insert(static_cast<const unsigned char*>(from)[n]);
  return CUDA_SUCCESS;
}
}  // namespace
EXPORT cuMemcpyHtoD_v2(CUdeviceptr, const void* from, size_t size) {
  const std::unique_lock lock(driver_mutex());
  const CUresult bad = use_legacy();
  return bad != CUDA_SUCCESS ? bad : read(from, size);
}
EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const auto* const bytes = static_cast<const std::byte*>(from);
  if (test_driver_uses_pinned && all_live(bytes)) {
    transfers().push_back({current, s, to, bytes, size});
    return CUDA_SUCCESS;
  }
  return read(from, size);
}
EXPORT cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t) {
  const std::unique_lock lock(driver_mutex());
  return use_legacy();
}
EXPORT cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
EXPORT cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
  const std::unique_lock lock(driver_mutex());
  constexpr CUdeviceptr base = CUdeviceptr{6} << 44, span = 32u << 20;
  if (from < base || from - base > span || size > span - (from - base)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(to, 0, size);
  return CUDA_SUCCESS;
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  return cuMemcpyDtoH_v2(to, from, size);
}
EXPORT cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) {
  const std::unique_lock lock(driver_mutex());
  return make(array);
}
EXPORT cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) {
  const std::unique_lock lock(driver_mutex());
  return make(array);
}
EXPORT cuArrayDestroy(CUarray array) {
  const std::unique_lock lock(driver_mutex());
  return end(array);
}
EXPORT cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
  const std::unique_lock lock(driver_mutex());
  return make(array);
}
EXPORT cuMipmappedArrayDestroy(CUmipmappedArray array) {
  const std::unique_lock lock(driver_mutex());
  must_know(array);
  if (const auto level = levels().find(array); level != levels().end()) {
    end(level->second);
    levels().erase(level);
  }
  return end(array);
}
EXPORT cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray array, unsigned) {
  const std::unique_lock lock(driver_mutex());
  must_know(array);
  if (levels().count(array) == 0) levels()[array] = static_cast<CUarray>(fresh());
  *level = levels()[array];
  return CUDA_SUCCESS;
}
EXPORT cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  const std::unique_lock lock(driver_mutex());
  if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY) must_know(copy->srcArray);
  if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY) must_know(copy->dstArray);
  return CUDA_SUCCESS;
}
EXPORT cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  return cuMemcpy3D_v2(copy);
}
EXPORT cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC*,
                         const CUDA_RESOURCE_VIEW_DESC*) {
  const std::unique_lock lock(driver_mutex());
  if (resource->resType == CU_RESOURCE_TYPE_ARRAY) must_know(resource->res.array.hArray);
  if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) must_know(resource->res.mipmap.hMipmappedArray);
  *object = reinterpret_cast<CUtexObject>(fresh());
  return CUDA_SUCCESS;
}
EXPORT cuTexObjectDestroy(CUtexObject object) {
  const std::unique_lock lock(driver_mutex());
  return end(reinterpret_cast<CUtexref>(object));
}
/// In which contexts the ends of the last copy between devices are; null: there was another copy since.
extern "C" {
__attribute__((visibility("default"))) CUcontext test_driver_peers[2] = {};
}
EXPORT cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  test_driver_peers[0] = test_driver_peers[1] = nullptr;
  return CUDA_SUCCESS;
}
EXPORT cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return cuMemcpyDtoDAsync_v2(to, from, size, nullptr);
}
EXPORT cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream s) {
  return cuMemcpyDtoDAsync_v2(copy->dstDevice, copy->srcDevice, copy->WidthInBytes, s);
}
EXPORT cuMemcpyPeerAsync(CUdeviceptr, CUcontext to, CUdeviceptr, CUcontext from, size_t, CUstream s) {
  const std::unique_lock lock(driver_mutex());
  must_know_stream(s);
  must_know(to);
  must_know(from);
  test_driver_peers[0] = to;
  test_driver_peers[1] = from;
  return CUDA_SUCCESS;
}
EXPORT cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream s) {
  return cuMemcpyPeerAsync(copy->dstDevice, copy->dstContext, copy->srcDevice, copy->srcContext,
                           copy->WidthInBytes, s);
}
