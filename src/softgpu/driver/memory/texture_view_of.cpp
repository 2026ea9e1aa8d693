// Texture and surface objects as the engine reads them.
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/memory/texture.h"

namespace softgpu::driver {
namespace {

using Channel = softgpu::TextureView::Channel;
using Edge = softgpu::TextureView::Edge;

struct ViewAndOwner {
  softgpu::TextureView view;
  std::shared_ptr<const void> owner;  // keeps the array
};

// False for a format whose elements the engine cannot read.
bool set_format(softgpu::TextureView& view, CUarray_format format, unsigned channels) {
  view.channels = channels;
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      view.channel = Channel::unsigned8;
      return true;
    case CU_AD_FORMAT_SIGNED_INT8:
      view.channel = Channel::signed8;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      view.channel = Channel::unsigned16;
      return true;
    case CU_AD_FORMAT_SIGNED_INT16:
      view.channel = Channel::signed16;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      view.channel = Channel::unsigned32;
      return true;
    case CU_AD_FORMAT_SIGNED_INT32:
      view.channel = Channel::signed32;
      return true;
    case CU_AD_FORMAT_HALF:
      view.channel = Channel::half;
      return true;
    case CU_AD_FORMAT_FLOAT:
      view.channel = Channel::single;
      return true;
    default:
      return false;
  }
}

bool set_resource(softgpu::TextureView& view, const TextureResource& resource) {
  const CUDA_RESOURCE_DESC& description = resource.description();
  if (!resource.is_mapped()) return false;
  if (const auto array = resource.first_level()) {
    view.address = array->address();
    view.pitch = array->pitch();
    view.slice = array->pitch() * array->rows();
    view.width = static_cast<std::uint32_t>(array->shape().Width);
    view.height = static_cast<std::uint32_t>(array->rows());
    view.depth = static_cast<std::uint32_t>(array->slices());
    return set_format(view, array->shape().Format, array->shape().NumChannels);
  }
  if (description.resType == CU_RESOURCE_TYPE_PITCH2D) {
    const auto& rows = description.res.pitch2D;
    view.address = rows.devPtr;
    view.pitch = rows.pitchInBytes;
    view.width = static_cast<std::uint32_t>(rows.width);
    view.height = static_cast<std::uint32_t>(rows.height);
    return set_format(view, rows.format, rows.numChannels);
  }
  const auto& linear = description.res.linear;
  view.address = linear.devPtr;
  view.linear_memory = true;
  if (!set_format(view, linear.format, linear.numChannels)) return false;
  view.width = static_cast<std::uint32_t>(linear.sizeInBytes / view.element_bytes());
  return view.width > 0;
}

void set_sampling(softgpu::TextureView& view, const CUDA_TEXTURE_DESC& sampling) {
  for (int n = 0; n < 3; ++n) {
    view.edge[n] = static_cast<Edge>(sampling.addressMode[n] & 3);
  }
  view.linear_filter = sampling.filterMode == CU_TR_FILTER_MODE_LINEAR;
  view.normalized_coordinates = (sampling.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  view.integers = (sampling.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  for (int n = 0; n < 4; ++n) view.border[n] = sampling.borderColor[n];
}

// False for a view that shows another part than the whole first level, or elements of another size.
bool set_resource_view(softgpu::TextureView& view, const CUDA_RESOURCE_VIEW_DESC& wanted) {
  if (wanted.firstMipmapLevel != 0 || wanted.firstLayer != 0) return false;
  if (wanted.format == CU_RES_VIEW_FORMAT_NONE) return true;
  if (wanted.format > CU_RES_VIEW_FORMAT_FLOAT_4X32) return false;
  // Three widths of each type of channel, in the order of Channel.
  constexpr unsigned widths[] = {1, 2, 4};
  const unsigned place = static_cast<unsigned>(wanted.format) - CU_RES_VIEW_FORMAT_UINT_1X8;
  const std::uint32_t before = view.element_bytes();
  view.channel = static_cast<Channel>(place / 3);
  view.channels = widths[place % 3];
  return view.element_bytes() == before;
}

}  // namespace

std::shared_ptr<const softgpu::TextureView> view_of_texture(std::uint64_t handle, bool surface) {
  const auto made = std::make_shared<ViewAndOwner>();
  bool readable = false;
  if (surface) {
    const auto object = registry<SurfaceObject>().find(reinterpret_cast<const void*>(handle));
    if (!object) return nullptr;
    readable = set_resource(made->view, object->resource);
    made->owner = object;
  } else {
    const auto object = registry<TextureObject>().find(reinterpret_cast<const void*>(handle));
    if (!object) return nullptr;
    readable = set_resource(made->view, object->resource) && (object->sampling.flags & CU_TRSF_SRGB) == 0 &&
               (!object->view || set_resource_view(made->view, *object->view));
    set_sampling(made->view, object->sampling);
    made->owner = object;
  }
  if (!readable) return nullptr;
  return {made, &made->view};
}

}  // namespace softgpu::driver
