#include "softgpu/exec/run/texture_view.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace softgpu {
namespace {

constexpr int64_t outside_texture = -1;

int64_t modulo(int64_t value, int64_t by) {
  return (value % by + by) % by;
}

// The element that an index along one axis means.
int64_t inside(int64_t index, int64_t size, TextureView::Edge edge, bool normalized) {
  if (index >= 0 && index < size) return index;
  switch (edge) {
    case TextureView::Edge::border:
      return outside_texture;
    case TextureView::Edge::wrap:
      if (normalized) return modulo(index, size);
      break;
    case TextureView::Edge::mirror:
      if (normalized) {
        const int64_t place = modulo(index, 2 * size);
        return place < size ? place : 2 * size - 1 - place;
      }
      break;
    case TextureView::Edge::clamp:
      break;
  }
  return std::clamp<int64_t>(index, 0, size - 1);
}

template <class T>
T read(uint64_t address) {
  T value;
  std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(value));
  return value;
}

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

float half_value(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

template <class T>
uint32_t integer_channel(uint64_t address, bool integers) {
  const T value = read<T>(address);
  if (integers || sizeof(T) == 4) return static_cast<uint32_t>(static_cast<int32_t>(value));
  const float most = static_cast<float>(std::numeric_limits<T>::max());
  return bits(std::max(static_cast<float>(value) / most, -1.0F));
}

uint32_t channel_at(const TextureView& view, uint64_t address) {
  switch (view.channel) {
    case TextureView::Channel::unsigned8:
      return integer_channel<uint8_t>(address, view.integers);
    case TextureView::Channel::signed8:
      return integer_channel<int8_t>(address, view.integers);
    case TextureView::Channel::unsigned16:
      return integer_channel<uint16_t>(address, view.integers);
    case TextureView::Channel::signed16:
      return integer_channel<int16_t>(address, view.integers);
    case TextureView::Channel::unsigned32:
      return read<uint32_t>(address);
    case TextureView::Channel::signed32:
      return integer_channel<int32_t>(address, true);
    case TextureView::Channel::half:
      return bits(half_value(read<uint16_t>(address)));
    case TextureView::Channel::single:
      return read<uint32_t>(address);
  }
  return 0;
}

bool gives_integers(const TextureView& view) {
  const bool wide =
      view.channel == TextureView::Channel::unsigned32 || view.channel == TextureView::Channel::signed32;
  const bool floating =
      view.channel == TextureView::Channel::half || view.channel == TextureView::Channel::single;
  return wide || (view.integers && !floating);
}

// The element at whole coordinates, each of which is an element or outside_texture.
void texel(const TextureView& view, const int64_t (&at)[3], uint32_t result[4]) {
  const bool outside = at[0] == outside_texture || at[1] == outside_texture || at[2] == outside_texture;
  const uint32_t size = view.element_bytes() / view.channels;
  const uint64_t address = view.address + static_cast<uint64_t>(at[2]) * view.slice +
                           static_cast<uint64_t>(at[1]) * view.pitch +
                           static_cast<uint64_t>(at[0]) * view.element_bytes();
  for (uint32_t n = 0; n < 4; ++n) {
    if (n >= view.channels) {
      result[n] = n == 3 ? (gives_integers(view) ? 1u : bits(1.0F)) : 0;
    } else if (outside) {
      result[n] = gives_integers(view) ? 0 : bits(view.border[n]);
    } else {
      result[n] = channel_at(view, address + n * size);
    }
  }
}

int64_t layer_of(const TextureView& view, int64_t layer) {
  return std::clamp<int64_t>(layer, 0, int64_t{view.depth} - 1);
}

int64_t whole(float value) {
  // Far outside every texture is as good as infinity; not-a-number reads the first element.
  return std::isnan(value) ? 0 : static_cast<int64_t>(std::floor(std::clamp(value, -1e9F, 1e9F)));
}

}  // namespace

uint32_t TextureView::element_bytes() const {
  switch (channel) {
    case Channel::unsigned8:
    case Channel::signed8:
      return channels;
    case Channel::unsigned16:
    case Channel::signed16:
    case Channel::half:
      return 2 * channels;
    default:
      return 4 * channels;
  }
}

void fetch(const TextureView& view, uint32_t dimensions, bool layered, const int32_t* at, int64_t layer,
           uint32_t result[4]) {
  const uint32_t size[3] = {view.width, view.height, view.depth};
  int64_t place[3] = {0, 0, layered ? layer_of(view, layer) : 0};
  for (uint32_t n = 0; n < dimensions; ++n) {
    if (view.linear_memory && (at[n] < 0 || static_cast<uint32_t>(at[n]) >= size[n])) {
      std::fill_n(result, 4, 0u);
      return;
    }
    place[n] = inside(at[n], size[n], view.edge[n], false);
  }
  texel(view, place, result);
}

void sample(const TextureView& view, uint32_t dimensions, bool layered, const float* at, int64_t layer,
            uint32_t result[4]) {
  const uint32_t size[3] = {view.width, view.height, view.depth};
  int64_t low[3] = {0, 0, layered ? layer_of(view, layer) : 0};
  float weight[3] = {};
  const bool filters = view.linear_filter && !gives_integers(view);
  for (uint32_t n = 0; n < dimensions; ++n) {
    float x = view.normalized_coordinates ? at[n] * static_cast<float>(size[n]) : at[n];
    if (filters) {
      x -= 0.5F;
      // The hardware's weights have 8 bits of fraction.
      weight[n] = std::isfinite(x) ? std::round((x - std::floor(x)) * 256.0F) / 256.0F : 0.0F;
    }
    low[n] = whole(x);
  }
  float sum[4] = {};
  for (uint32_t corner = 0; corner < (filters ? 1u << dimensions : 1u); ++corner) {
    int64_t place[3] = {low[0], low[1], low[2]};
    float share = 1.0F;
    for (uint32_t n = 0; n < dimensions; ++n) {
      const bool upper = (corner >> n & 1) != 0;
      place[n] = inside(low[n] + (upper ? 1 : 0), size[n], view.edge[n], view.normalized_coordinates);
      share *= upper ? weight[n] : 1.0F - weight[n];
    }
    texel(view, place, result);
    if (!filters) return;
    for (uint32_t n = 0; n < 4; ++n) sum[n] += share * std::bit_cast<float>(result[n]);
  }
  for (uint32_t n = 0; n < 4; ++n) result[n] = bits(sum[n]);
}

}  // namespace softgpu
