#include "worker/objects/array_size.h"

#include <algorithm>

#include "shared_api/array_elements.h"

namespace gpupool::worker {
namespace {

constexpr std::uint64_t row_alignment = 32;
constexpr std::uint64_t array_alignment = 64 << 10;
constexpr std::uint64_t most_elements = 1u << 20;  // along one axis; far above every device's limit

/// Of all channels.
std::uint64_t bits_per_element(CUarray_format format, unsigned channels) {
  if (const std::size_t bytes = copies::element_bytes(format, channels); bytes != 0) return 8 * bytes;
  const bool blocks = format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
  return blocks ? 8 : 64;  // at most: blocks of 16 texels in 16 bytes, video formats of four 16-bit samples
}

constexpr std::uint64_t rounded(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels) {
  if (array.Width == 0 || array.Width > most_elements || array.Height > most_elements ||
      array.Depth > most_elements || array.NumChannels == 0 || array.NumChannels > 4 || levels == 0 ||
      levels > 32) {
    return 0;
  }
  const bool layered = (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  std::uint64_t width = array.Width, height = std::max<std::uint64_t>(array.Height, 1),
                depth = std::max<std::uint64_t>(array.Depth, 1), total = 0;
  const std::uint64_t bits = bits_per_element(array.Format, array.NumChannels);
  for (unsigned level = 0; level < levels; ++level) {
    const std::uint64_t row = rounded((width * bits + 7) / 8, row_alignment);
    std::uint64_t plane = 0, size = 0;
    if (__builtin_mul_overflow(row, height, &plane) || __builtin_mul_overflow(plane, depth, &size) ||
        __builtin_add_overflow(total, size, &total) || total > std::uint64_t{1} << 50) {
      return 0;
    }
    width = std::max<std::uint64_t>(width / 2, 1);
    height = std::max<std::uint64_t>(height / 2, 1);
    if (!layered) depth = std::max<std::uint64_t>(depth / 2, 1);
  }
  return rounded(total, array_alignment);
}

}  // namespace gpupool::worker
