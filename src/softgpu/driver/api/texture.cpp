// Texture and surface objects.
#include "softgpu/driver/memory/texture.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc, const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return entry([&] {
    require(pTexObject && pResDesc && pTexDesc);
    current_context();
    const bool of_array =
        pResDesc->resType == CU_RESOURCE_TYPE_ARRAY || pResDesc->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    require(!pResViewDesc || of_array);
    require(pTexDesc->maxAnisotropy <= 16 && pTexDesc->filterMode <= CU_TR_FILTER_MODE_LINEAR);
    auto made =
        std::make_shared<TextureObject>(TextureObject{TextureResource(*pResDesc), *pTexDesc, std::nullopt});
    if (pResViewDesc) made->view = *pResViewDesc;
    *pTexObject = registry<TextureObject>().add<CUtexObject>(std::move(made));
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return entry(
      [&] { registry<TextureObject>().take(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return entry([&] {
    require(pResDesc != nullptr);
    *pResDesc = registry<TextureObject>()
                    .get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE)
                    ->resource.description();
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return entry([&] {
    require(pTexDesc != nullptr);
    *pTexDesc =
        registry<TextureObject>().get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE)->sampling;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc, CUtexObject texObject) {
  return entry([&] {
    require(pResViewDesc != nullptr);
    const auto texture =
        registry<TextureObject>().get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE);
    require(texture->view.has_value());
    *pResViewDesc = *texture->view;
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return entry([&] {
    require(pSurfObject && pResDesc && pResDesc->resType == CU_RESOURCE_TYPE_ARRAY);
    current_context();
    auto made = std::make_shared<SurfaceObject>(SurfaceObject{TextureResource(*pResDesc)});
    require((made->resource.array()->shape().Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0);
    *pSurfObject = registry<SurfaceObject>().add<CUsurfObject>(std::move(made));
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return entry(
      [&] { registry<SurfaceObject>().take(reinterpret_cast<void*>(surfObject), CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return entry([&] {
    require(pResDesc != nullptr);
    *pResDesc = registry<SurfaceObject>()
                    .get(reinterpret_cast<void*>(surfObject), CUDA_ERROR_INVALID_VALUE)
                    ->resource.description();
  });
}
