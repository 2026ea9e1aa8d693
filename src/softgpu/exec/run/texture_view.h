// What a kernel reads through a texture or surface handle, and the rules by which a coordinate finds its
// texels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softgpu {

struct TextureView {
  enum class Channel : uint8_t {
    unsigned8,
    signed8,
    unsigned16,
    signed16,
    unsigned32,
    signed32,
    half,
    single
  };
  enum class Edge : uint8_t { wrap, clamp, mirror, border };  // numbered as CUaddress_mode

  uint64_t address = 0;
  size_t pitch = 0, slice = 0;                // bytes between rows, between slices or layers
  uint32_t width = 1, height = 1, depth = 1;  // in elements; depth counts layers of a layered array
  Channel channel = Channel::single;
  uint32_t channels = 1;
  Edge edge[3] = {Edge::wrap, Edge::wrap, Edge::wrap};
  bool linear_filter = false;
  bool normalized_coordinates = false;
  bool integers = false;       // integer channels are read as they are, not as fractions of 1
  bool linear_memory = false;  // fetched by index; zero beyond its end
  float border[4] = {};

  [[nodiscard]] uint32_t element_bytes() const;
};

// One texture read: four channels as the bits of floats or integers. `at` has `dimensions` coordinates;
// `layer` counts only in layered reads. With whole coordinates the texel is fetched by index.
void sample(const TextureView& view, uint32_t dimensions, bool layered, const float* at, int64_t layer,
            uint32_t result[4]);
void fetch(const TextureView& view, uint32_t dimensions, bool layered, const int32_t* at, int64_t layer,
           uint32_t result[4]);

}  // namespace softgpu
