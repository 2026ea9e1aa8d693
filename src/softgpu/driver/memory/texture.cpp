#include "softgpu/driver/memory/texture.h"

#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"

namespace softgpu::driver {

TextureResource::TextureResource(const CUDA_RESOURCE_DESC& description) : description_(description) {
  require(description.flags == 0);
  constexpr std::uint64_t address_alignment = 512;
  switch (description.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      array_ = registry<Array>().get(description.res.array.hArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      mipmapped_ = registry<MipmappedArray>().get(description.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = description.res.linear;
      require(linear.devPtr != 0 && linear.devPtr % address_alignment == 0 && linear.sizeInBytes > 0);
      Array::check_shape({1, 0, 0, linear.format, linear.numChannels, 0});
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& rows = description.res.pitch2D;
      constexpr std::size_t row_pitch_alignment = 32;
      constexpr std::size_t widest = 131072;
      require(rows.devPtr != 0 && rows.devPtr % address_alignment == 0);
      require(rows.width > 0 && rows.width <= widest && rows.height > 0 && rows.height <= widest);
      const CUDA_ARRAY3D_DESCRIPTOR element{1, 0, 0, rows.format, rows.numChannels, 0};
      Array::check_shape(element);
      require(rows.pitchInBytes % row_pitch_alignment == 0 && rows.pitchInBytes <= (std::size_t{1} << 40));
      require(rows.pitchInBytes >= rows.width * Array::element_bytes(element));
      break;
    }
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  require(is_mapped());
}

bool TextureResource::is_mapped() const {
  const auto& allocations = AllocationTable::of_process();
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
