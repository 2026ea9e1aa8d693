// Texture and surface objects, and the references of older programs: descriptions that keep their arrays
// alive.
#pragma once

#include <memory>
#include <optional>

#include "softgpu/driver/array.h"
#include "softgpu/driver/cuda_api.h"

namespace softgpu::driver {

/// What a texture or surface reads, checked: arrays are held, linear memory is known. Throws Error.
class TextureResource {
 public:
  explicit TextureResource(const CUDA_RESOURCE_DESC& description);
  const CUDA_RESOURCE_DESC& description() const { return description_; }
  const std::shared_ptr<Array>& array() const { return array_; }

 private:
  CUDA_RESOURCE_DESC description_;
  std::shared_ptr<Array> array_;
  std::shared_ptr<MipmappedArray> mipmapped_;
};

struct TextureObject {
  TextureResource resource;
  CUDA_TEXTURE_DESC sampling;
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

struct SurfaceObject {
  TextureResource resource;
};

struct TextureReference {
  std::shared_ptr<Array> array;
  std::shared_ptr<MipmappedArray> mipmapped;
  CUdeviceptr address = 0;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;
  CUDA_TEXTURE_DESC sampling{};
};

}  // namespace softgpu::driver
