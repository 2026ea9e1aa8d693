// The floating formats of 4, 6 and 8 bits, and exponents alone, as tables of what each pattern means.
#pragma once

#include <array>

#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

inline constexpr Format e2m3_format{3, 2, false, false}, e3m2_format{2, 3, false, false},
    e2m1_format{1, 2, false, false};

enum class Small : uint32_t { e4m3, e5m2, e3m2, e2m3, e2m1 };

inline constexpr Format format_of_small(Small which) {
  switch (which) {
    case Small::e4m3:
      return e4m3_format;
    case Small::e5m2:
      return e5m2_format;
    case Small::e3m2:
      return e3m2_format;
    case Small::e2m3:
      return e2m3_format;
    default:
      return e2m1_format;
  }
}

// The value of every pattern; formats below 8 bits repeat.
inline const std::array<float, 256>& values_of(Small which) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, 5> made{};
    for (uint32_t f = 0; f < made.size(); ++f) {
      const Format format = format_of_small(static_cast<Small>(f));
      const uint32_t patterns = 2u << (format.mantissa_bits + format.exponent_bits);
      for (uint32_t bits = 0; bits < 256; ++bits)
        made[f][bits] = static_cast<float>(format_to_double(bits % patterns, format));
    }
    return made;
  }();
  return tables[static_cast<uint32_t>(which)];
}

// ue8m0: 2^(bits - 127); 255 is NaN.
SOFTGPU_INLINE float scale_of_exponent(uint32_t bits) {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return bits == 0 ? 0x1p-127f : std::bit_cast<float>(bits << 23);
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA
