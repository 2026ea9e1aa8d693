#include "softgpu/driver/memory/array.h"

#include <algorithm>
#include <bit>

#include "shared_api/array_elements.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

constexpr std::size_t row_alignment = 32;
constexpr std::size_t level_alignment = 512;

std::size_t rounded(std::size_t size, std::size_t to) {
  return (size + to - 1) / to * to;
}

CUDA_ARRAY3D_DESCRIPTOR halved(CUDA_ARRAY3D_DESCRIPTOR shape) {
  const auto half = [](std::size_t size) { return size == 0 ? 0 : std::max<std::size_t>(size / 2, 1); };
  shape.Width = half(shape.Width);
  shape.Height = half(shape.Height);
  if ((shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) shape.Depth = half(shape.Depth);
  return shape;
}

}  // namespace

ArrayStorage::ArrayStorage(std::shared_ptr<Context> context, std::size_t size)
    : context_(std::move(context)),
      size_(size),
      address_(context_->device().allocate(size, level_alignment)) {}

ArrayStorage::~ArrayStorage() {
  context_->device().free(address_, size_);
}

std::size_t Array::element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return gpupool::copies::element_bytes(shape.Format, shape.NumChannels);
}

void Array::check_shape(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  constexpr std::size_t largest_extent = 131072;  // the widest one-dimensional array of any GPU
  constexpr unsigned known_flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                   CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;
  require((shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0,
          CUDA_ERROR_NOT_SUPPORTED);
  require((shape.Flags & ~known_flags) == 0);
  require(shape.Width > 0 && shape.Width <= largest_extent && shape.Height <= largest_extent &&
          shape.Depth <= largest_extent);
  require(shape.NumChannels == 1 || shape.NumChannels == 2 || shape.NumChannels == 4);
  // Its channels are no whole bytes, which textures and surfaces do not read.
  require(element_bytes(shape) != 0 && shape.Format != CU_AD_FORMAT_UNORM_INT_101010_2,
          CUDA_ERROR_NOT_SUPPORTED);
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  require(shape.Depth == 0 || shape.Height != 0 || layered);  // only layers may be rows
  require((shape.Flags & CUDA_ARRAY3D_CUBEMAP) == 0 ||
          (shape.Width == shape.Height && shape.Depth != 0 && shape.Depth % 6 == 0 &&
           (layered || shape.Depth == 6)));
}

std::size_t Array::bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  std::size_t size = rounded(shape.Width * element_bytes(shape), row_alignment);
  require(!__builtin_mul_overflow(size, std::max<std::size_t>(shape.Height, 1), &size) &&
          !__builtin_mul_overflow(size, std::max<std::size_t>(shape.Depth, 1), &size));
  return size;
}

std::shared_ptr<Array> Array::create(const std::shared_ptr<Context>& context,
                                     const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  check_shape(shape);
  return std::make_shared<Array>(std::make_shared<ArrayStorage>(context, bytes(shape)), 0, shape, false);
}

Array::Array(std::shared_ptr<ArrayStorage> storage, std::size_t offset, const CUDA_ARRAY3D_DESCRIPTOR& shape,
             bool is_level)
    : storage_(std::move(storage)), offset_(offset), shape_(shape), is_level_(is_level) {}

std::size_t Array::row_bytes() const {
  return shape_.Width * element_bytes(shape_);
}
std::size_t Array::pitch() const {
  return rounded(row_bytes(), row_alignment);
}
std::size_t Array::rows() const {
  return std::max<std::size_t>(shape_.Height, 1);
}
std::size_t Array::slices() const {
  return std::max<std::size_t>(shape_.Depth, 1);
}

MipmappedArray::MipmappedArray(const std::shared_ptr<Context>& context, const CUDA_ARRAY3D_DESCRIPTOR& shape,
                               unsigned levels)
    : context_(context) {
  Array::check_shape(shape);
  require(levels > 0);
  const bool layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const std::size_t longest = std::max({shape.Width, shape.Height, layered ? 0 : shape.Depth});
  levels = std::min(levels, static_cast<unsigned>(std::bit_width(longest)));
  std::vector<std::pair<std::size_t, CUDA_ARRAY3D_DESCRIPTOR>> parts;
  std::size_t size = 0;
  CUDA_ARRAY3D_DESCRIPTOR level = shape;
  for (unsigned n = 0; n < levels; ++n) {
    parts.emplace_back(size, level);
    size += rounded(Array::bytes(level), level_alignment);
    level = halved(level);
  }
  const auto storage = std::make_shared<ArrayStorage>(context, size);
  for (const auto& [offset, part] : parts) {
    levels_.push_back(std::make_shared<Array>(storage, offset, part, true));
  }
}

}  // namespace softgpu::driver
