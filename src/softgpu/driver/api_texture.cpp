// Texture and surface objects.
#include "softgpu/driver/copy.h"
#include "softgpu/driver/current_context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/texture.h"

using namespace softgpu::driver;

namespace softgpu::driver {

TextureResource::TextureResource(const CUDA_RESOURCE_DESC& description) : description_(description) {
  require(description.flags == 0);
  constexpr std::uint64_t kAlignment = 512;
  switch (description.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      array_ = Driver::get().arrays.get(description.res.array.hArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      mipmapped_ = Driver::get().mipmapped_arrays.get(description.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = description.res.linear;
      require(linear.devPtr != 0 && linear.devPtr % kAlignment == 0 && linear.sizeInBytes > 0);
      Array::check_shape({1, 0, 0, linear.format, linear.numChannels, 0});
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& rows = description.res.pitch2D;
      constexpr std::size_t kPitchAlignment = 32;
      constexpr std::size_t kWidest = 131072;
      require(rows.devPtr != 0 && rows.devPtr % kAlignment == 0);
      require(rows.width > 0 && rows.width <= kWidest && rows.height > 0 && rows.height <= kWidest);
      const CUDA_ARRAY3D_DESCRIPTOR element{1, 0, 0, rows.format, rows.numChannels, 0};
      Array::check_shape(element);
      require(rows.pitchInBytes % kPitchAlignment == 0 && rows.pitchInBytes <= (std::size_t{1} << 40));
      require(rows.pitchInBytes >= rows.width * Array::element_bytes(element));
      break;
    }
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  require(is_mapped());
}

bool TextureResource::is_mapped() const {
  const auto& allocations = Driver::get().allocations;
  const auto& linear = description_.res.linear;
  const auto& rows = description_.res.pitch2D;
  switch (description_.resType) {
    case CU_RESOURCE_TYPE_LINEAR:
      return allocations.covers(linear.devPtr, linear.sizeInBytes);
    case CU_RESOURCE_TYPE_PITCH2D: {
      const CUDA_ARRAY3D_DESCRIPTOR element{1, 0, 0, rows.format, rows.numChannels, 0};
      const std::size_t row_bytes = rows.width * Array::element_bytes(element);
      return allocations.covers(rows.devPtr, rows.pitchInBytes * (rows.height - 1) + row_bytes);
    }
    default:
      return true;
  }
}

}  // namespace softgpu::driver

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
    *pTexObject = Driver::get().textures.add<CUtexObject>(std::move(made));
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return entry(
      [&] { Driver::get().textures.take(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return entry([&] {
    require(pResDesc != nullptr);
    *pResDesc = Driver::get()
                    .textures.get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE)
                    ->resource.description();
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return entry([&] {
    require(pTexDesc != nullptr);
    *pTexDesc =
        Driver::get().textures.get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE)->sampling;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc, CUtexObject texObject) {
  return entry([&] {
    require(pResViewDesc != nullptr);
    const auto texture =
        Driver::get().textures.get(reinterpret_cast<void*>(texObject), CUDA_ERROR_INVALID_VALUE);
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
    *pSurfObject = Driver::get().surfaces.add<CUsurfObject>(std::move(made));
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return entry(
      [&] { Driver::get().surfaces.take(reinterpret_cast<void*>(surfObject), CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return entry([&] {
    require(pResDesc != nullptr);
    *pResDesc = Driver::get()
                    .surfaces.get(reinterpret_cast<void*>(surfObject), CUDA_ERROR_INVALID_VALUE)
                    ->resource.description();
  });
}
