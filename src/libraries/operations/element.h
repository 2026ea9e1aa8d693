// Types of elements, under the numbers of cudaDataType (library_types.h): the ABI of every math library.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpupool::operations {

/// Yes or no. No bool: an operation may come with any byte in its place.
using Flag = std::uint8_t;

enum class Element : std::uint8_t {
  f32 = 0,
  f64 = 1,
  f16 = 2,
  i8 = 3,
  c32 = 4,  // complex of two f32
  c64 = 5,
  u8 = 8,
  i32 = 10,
  bf16 = 14,
  f8_e4m3 = 28,
  f8_e5m2 = 29,
};

/// 0: not a type that operations know.
constexpr std::size_t bytes_of(Element type) {
  switch (type) {
    case Element::i8:
    case Element::u8:
    case Element::f8_e4m3:
    case Element::f8_e5m2:
      return 1;
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::f32:
    case Element::i32:
      return 4;
    case Element::f64:
    case Element::c32:
      return 8;
    case Element::c64:
      return 16;
  }
  return 0;
}

constexpr bool is_complex(Element type) {
  return type == Element::c32 || type == Element::c64;
}
constexpr Element real_of(Element type) {
  return type == Element::c32 ? Element::f32 : type == Element::c64 ? Element::f64 : type;
}
constexpr Element complex_of(Element type) {
  return type == Element::f32 ? Element::c32 : type == Element::f64 ? Element::c64 : type;
}

/// The bf16 that is the nearest, and of two the even one.
constexpr std::uint16_t bfloat16_of(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((word >> 16U) | 0x40U);  // stays no number
  return static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
}

/// The same as f16. By hand, because not every compiler has such a type on every processor.
constexpr std::uint16_t float16_of(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7fffffffU, sign = word >> 16U & 0x8000U;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // from 65520 on
  // The unit of 0.5f is the smallest f16: the addition rounds to it.
  if (magnitude < 0x38800000U) {
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000U));
  }
  return static_cast<std::uint16_t>(sign |
                                    (magnitude - (112U << 23U) + 0xfffU + (magnitude >> 13U & 1U)) >> 13U);
}
constexpr float of_float16(std::uint16_t half) {
  const std::uint32_t magnitude = (half & 0x7fffU) << 13U;
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  if ((half & 0x7c00U) == 0x7c00U) return std::bit_cast<float>(sign | magnitude | 0x7f800000U);
  // 2^112 moves the bias of the exponent, and makes subnormal numbers normal.
  const float exact = std::bit_cast<float>(magnitude) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(exact) | sign);
}

}  // namespace gpupool::operations
