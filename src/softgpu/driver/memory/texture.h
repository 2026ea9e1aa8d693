// Texture and surface objects, and the references of older programs: descriptions that keep their arrays
// alive.
#pragma once

#include <memory>
#include <optional>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/exec/run/texture_view.h"

namespace softgpu::driver {

/// What a texture or surface reads, checked: arrays are held, linear memory is known. Throws Error.
class TextureResource {
 public:
  explicit TextureResource(const CUDA_RESOURCE_DESC& description);
  const CUDA_RESOURCE_DESC& description() const { return description_; }
  const std::shared_ptr<Array>& array() const { return array_; }
  /// Whether the linear memory it reads is still there; arrays are held.
  bool is_mapped() const;
  /// The array that is read: of a mipmapped one its first level. Null for linear memory.
  std::shared_ptr<Array> first_level() const { return mipmapped_ ? mipmapped_->levels().front() : array_; }

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

/// What a kernel reads or writes through a handle; null for one that is not alive.
std::shared_ptr<const softgpu::TextureView> view_of_texture(std::uint64_t handle, bool surface);

}  // namespace softgpu::driver
