// Texture and surface objects.
#include <algorithm>

#include "cudart/array_format.h"
#include "cudart/call.h"
#include "generated_custom.h"

namespace gpupool::cudart {

namespace {

cudaError_t driver_resource(const cudaResourceDesc& r, CUDA_RESOURCE_DESC& made) {
  made = {};
  made.resType = static_cast<CUresourcetype>(r.resType);
#if CUDART_VERSION >= 13000
  made.flags = r.flags;
#endif
  switch (r.resType) {
    case cudaResourceTypeArray:
      made.res.array.hArray = reinterpret_cast<CUarray>(r.res.array.array);
      return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
      made.res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(r.res.mipmap.mipmap);
      return cudaSuccess;
    case cudaResourceTypeLinear:
      made.res.linear.devPtr = as<CUdeviceptr>(r.res.linear.devPtr);
      made.res.linear.sizeInBytes = r.res.linear.sizeInBytes;
      return driver_format(r.res.linear.desc, made.res.linear.format, made.res.linear.numChannels)
                 ? cudaSuccess
                 : cudaErrorInvalidChannelDescriptor;
    case cudaResourceTypePitch2D:
      made.res.pitch2D.devPtr = as<CUdeviceptr>(r.res.pitch2D.devPtr);
      made.res.pitch2D.width = r.res.pitch2D.width;
      made.res.pitch2D.height = r.res.pitch2D.height;
      made.res.pitch2D.pitchInBytes = r.res.pitch2D.pitchInBytes;
      return driver_format(r.res.pitch2D.desc, made.res.pitch2D.format, made.res.pitch2D.numChannels)
                 ? cudaSuccess
                 : cudaErrorInvalidChannelDescriptor;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaResourceDesc runtime_resource(const CUDA_RESOURCE_DESC& r) {
  cudaResourceDesc made{};
  made.resType = static_cast<cudaResourceType>(r.resType);
#if CUDART_VERSION >= 13000
  made.flags = r.flags;
#endif
  switch (made.resType) {
    case cudaResourceTypeArray:
      made.res.array.array = reinterpret_cast<cudaArray_t>(r.res.array.hArray);
      break;
    case cudaResourceTypeMipmappedArray:
      made.res.mipmap.mipmap = reinterpret_cast<cudaMipmappedArray_t>(r.res.mipmap.hMipmappedArray);
      break;
    case cudaResourceTypeLinear:
      made.res.linear.devPtr = as<void*>(r.res.linear.devPtr);
      made.res.linear.desc = channel_description(r.res.linear.format, r.res.linear.numChannels);
      made.res.linear.sizeInBytes = r.res.linear.sizeInBytes;
      break;
    case cudaResourceTypePitch2D:
      made.res.pitch2D.devPtr = as<void*>(r.res.pitch2D.devPtr);
      made.res.pitch2D.desc = channel_description(r.res.pitch2D.format, r.res.pitch2D.numChannels);
      made.res.pitch2D.width = r.res.pitch2D.width;
      made.res.pitch2D.height = r.res.pitch2D.height;
      made.res.pitch2D.pitchInBytes = r.res.pitch2D.pitchInBytes;
      break;
    default:
      break;
  }
  return made;
}

CUDA_TEXTURE_DESC driver_texture(const cudaTextureDesc& t) {
  CUDA_TEXTURE_DESC made{};
  for (int n = 0; n < 3; ++n) made.addressMode[n] = static_cast<CUaddress_mode>(t.addressMode[n]);
  made.filterMode = static_cast<CUfilter_mode>(t.filterMode);
  if (t.readMode == cudaReadModeElementType) made.flags |= CU_TRSF_READ_AS_INTEGER;
  if (t.normalizedCoords != 0) made.flags |= CU_TRSF_NORMALIZED_COORDINATES;
  if (t.sRGB != 0) made.flags |= CU_TRSF_SRGB;
  if (t.disableTrilinearOptimization != 0) made.flags |= CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if (t.seamlessCubemap != 0) made.flags |= CU_TRSF_SEAMLESS_CUBEMAP;
  made.maxAnisotropy = t.maxAnisotropy;
  made.mipmapFilterMode = static_cast<CUfilter_mode>(t.mipmapFilterMode);
  made.mipmapLevelBias = t.mipmapLevelBias;
  made.minMipmapLevelClamp = t.minMipmapLevelClamp;
  made.maxMipmapLevelClamp = t.maxMipmapLevelClamp;
  std::copy_n(t.borderColor, 4, made.borderColor);
  return made;
}

cudaTextureDesc runtime_texture(const CUDA_TEXTURE_DESC& t) {
  cudaTextureDesc made{};
  for (int n = 0; n < 3; ++n) made.addressMode[n] = static_cast<cudaTextureAddressMode>(t.addressMode[n]);
  made.filterMode = static_cast<cudaTextureFilterMode>(t.filterMode);
  made.readMode =
      (t.flags & CU_TRSF_READ_AS_INTEGER) != 0 ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
  made.normalizedCoords = (t.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  made.sRGB = (t.flags & CU_TRSF_SRGB) != 0;
  made.disableTrilinearOptimization = (t.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION) != 0;
  made.seamlessCubemap = (t.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  made.maxAnisotropy = t.maxAnisotropy;
  made.mipmapFilterMode = static_cast<cudaTextureFilterMode>(t.mipmapFilterMode);
  made.mipmapLevelBias = t.mipmapLevelBias;
  made.minMipmapLevelClamp = t.minMipmapLevelClamp;
  made.maxMipmapLevelClamp = t.maxMipmapLevelClamp;
  std::copy_n(t.borderColor, 4, made.borderColor);
  return made;
}

}  // namespace

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* pTexObject, const cudaResourceDesc* pResDesc,
                                    const cudaTextureDesc* pTexDesc,
                                    const cudaResourceViewDesc* pResViewDesc) {
  if (pTexObject == nullptr || pResDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_RESOURCE_DESC resource;
  if (const cudaError_t bad = driver_resource(*pResDesc, resource); bad != cudaSuccess) return bad;
  const CUDA_TEXTURE_DESC texture = pTexDesc != nullptr ? driver_texture(*pTexDesc) : CUDA_TEXTURE_DESC{};
  // The runtime's view has the driver's fields in the driver's order, and ends before the reserved ones.
  CUDA_RESOURCE_VIEW_DESC view{};
  if (pResViewDesc != nullptr) {
    view.format = static_cast<CUresourceViewFormat>(pResViewDesc->format);
    view.width = pResViewDesc->width;
    view.height = pResViewDesc->height;
    view.depth = pResViewDesc->depth;
    view.firstMipmapLevel = pResViewDesc->firstMipmapLevel;
    view.lastMipmapLevel = pResViewDesc->lastMipmapLevel;
    view.firstLayer = pResViewDesc->firstLayer;
    view.lastLayer = pResViewDesc->lastLayer;
  }
  return forward([&](const EntryPoints& d) {
    return d.cuTexObjectCreate(pTexObject, &resource, &texture, pResViewDesc != nullptr ? &view : nullptr);
  });
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* pSurfObject, const cudaResourceDesc* pResDesc) {
  if (pSurfObject == nullptr || pResDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_RESOURCE_DESC resource;
  if (const cudaError_t bad = driver_resource(*pResDesc, resource); bad != cudaSuccess) return bad;
  return forward([&](const EntryPoints& d) { return d.cuSurfObjectCreate(pSurfObject, &resource); });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* pResDesc, cudaTextureObject_t texObject) {
  if (pResDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_RESOURCE_DESC found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuTexObjectGetResourceDesc(&found, texObject); });
  if (result == cudaSuccess) *pResDesc = runtime_resource(found);
  return result;
}

cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* pResDesc, cudaSurfaceObject_t surfObject) {
  if (pResDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_RESOURCE_DESC found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuSurfObjectGetResourceDesc(&found, surfObject); });
  if (result == cudaSuccess) *pResDesc = runtime_resource(found);
  return result;
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* pTexDesc, cudaTextureObject_t texObject) {
  if (pTexDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_TEXTURE_DESC found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuTexObjectGetTextureDesc(&found, texObject); });
  if (result == cudaSuccess) *pTexDesc = runtime_texture(found);
  return result;
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements,
                                                 const cudaChannelFormatDesc* fmtDesc, int device) {
  if (maxWidthInElements == nullptr || fmtDesc == nullptr) return cudaErrorInvalidValue;
  CUarray_format format{};
  unsigned channels = 0;
  if (!driver_format(*fmtDesc, format, channels)) return cudaErrorInvalidChannelDescriptor;
  return forward_without_context([&](const EntryPoints& d) {
    return d.cuDeviceGetTexture1DLinearMaxWidth(maxWidthInElements, format, channels, device);
  });
}

// The driver's view is longer than the runtime's, so it is not read into the caller's.
cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* pResViewDesc,
                                                 cudaTextureObject_t texObject) {
  if (pResViewDesc == nullptr) return cudaErrorInvalidValue;
  CUDA_RESOURCE_VIEW_DESC found{};
  const cudaError_t result =
      forward([&](const EntryPoints& d) { return d.cuTexObjectGetResourceViewDesc(&found, texObject); });
  if (result != cudaSuccess) return result;
  *pResViewDesc = {};
  pResViewDesc->format = static_cast<cudaResourceViewFormat>(found.format);
  pResViewDesc->width = found.width;
  pResViewDesc->height = found.height;
  pResViewDesc->depth = found.depth;
  pResViewDesc->firstMipmapLevel = found.firstMipmapLevel;
  pResViewDesc->lastMipmapLevel = found.lastMipmapLevel;
  pResViewDesc->firstLayer = found.firstLayer;
  pResViewDesc->lastLayer = found.lastLayer;
  return cudaSuccess;
}

}  // namespace gpupool::cudart
