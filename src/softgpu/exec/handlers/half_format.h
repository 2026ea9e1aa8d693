// The 16-bit floating formats, and rounding a double to any small format.
#pragma once

#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// Multiplying by 2^112 moves half's exponent bias to float's, and normalises subnormals, exactly.
SOFTGPU_INLINE float half_to_float(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;
  const uint32_t bits = (h & 0x7c00) == 0x7c00 ? special : finite;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(h & 0x8000) << 16);
}

// Nearest even.
SOFTGPU_INLINE uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // The unit of 0.5f is half's smallest subnormal: the addition rounds to it.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // from 65520 on
  result = magnitude > 0x7f800000u ? 0x7fffu : result;
  return static_cast<uint16_t>(result | (magnitude > 0x7f800000u ? 0 : bits >> 16 & 0x8000u));
}

SOFTGPU_INLINE float bfloat_to_float(uint16_t b) {
  return std::bit_cast<float>(uint32_t{b} << 16);
}

// Nearest even.
SOFTGPU_INLINE uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

struct Format {
  int mantissa_bits;  // stored
  int exponent_bits;
  bool has_infinity;  // else the largest exponent's patterns are numbers
  bool has_nan;       // without infinity: the last of them is NaN (e4m3); e2m3, e3m2 and e2m1 have none
};
inline constexpr Format f16_format{10, 5, true, true}, bf16_format{7, 8, true, true},
    e5m2_format{2, 5, true, true}, e4m3_format{3, 4, false, true};

// Rounds once, whatever the mode. With `finite` what overflows becomes the largest finite number.
// Works on the double's exact bits, so that no intermediate rounding can spoil the result.
inline uint32_t round_to_format(double value, const Format& format, uint32_t mode, bool finite) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 63);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  const int total = format.mantissa_bits + format.exponent_bits;
  const uint32_t sign_bit = sign << total;
  const uint32_t all_exponent = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint32_t infinity = format.has_infinity ? all_exponent : (1u << total) - 1;
  const uint32_t largest = format.has_nan ? infinity - 1 : infinity;
  if (biased == 0x7ff && fraction != 0) return (1u << total) - 1;  // NaN has no sign; or the largest number
  const bool away = mode == round_up ? sign == 0 : mode == round_down ? sign == 1 : false;
  const uint32_t overflow =
      finite || mode == round_toward_zero || ((mode == round_up || mode == round_down) && !away) ? largest
                                                                                                 : infinity;
  if (biased == 0x7ff) return sign_bit | (finite ? largest : infinity);
  if (biased == 0 && fraction == 0) return sign_bit;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = biased - 1023;
  if (biased == 0) return sign_bit | (away ? 1u : 0u);  // a subnormal double is far below every format
  const uint64_t significand = fraction | uint64_t{1} << 52;
  // Bits to drop so that the result's unit is that of its binade, or of the subnormals.
  const int smallest = 1 - bias;
  int drop = 52 - format.mantissa_bits;
  if (exponent < smallest) drop += smallest - exponent;
  uint64_t kept = drop > 62 ? 0 : significand >> drop;
  const uint64_t rest = drop > 62 ? significand : significand & ((uint64_t{1} << drop) - 1);
  const uint64_t half = drop > 62 ? ~uint64_t{0} : uint64_t{1} << (drop - 1);
  if (mode == round_nearest_even) {
    if (rest > half || (rest == half && (kept & 1))) ++kept;
  } else if (mode == round_nearest_away) {
    if (rest >= half) ++kept;
  } else if (away && rest != 0) {
    ++kept;
  }
  uint64_t result;
  if (exponent < smallest) {
    result = kept;  // a carry into the smallest normal is right by itself
  } else {
    result = (static_cast<uint64_t>(exponent + bias - 1) << format.mantissa_bits) + kept;
  }
  if (result > largest) result = overflow;
  return sign_bit | static_cast<uint32_t>(result);
}

inline double format_to_double(uint32_t bits, const Format& format) {
  const int total = format.mantissa_bits + format.exponent_bits;
  const bool negative = bits >> total & 1;
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1));
  const int top = (1 << format.exponent_bits) - 1, bias = (1 << (format.exponent_bits - 1)) - 1;
  double magnitude;
  if (exponent == top && format.has_nan &&
      (format.has_infinity || mantissa == (1u << format.mantissa_bits) - 1)) {
    magnitude = format.has_infinity && mantissa == 0 ? std::numeric_limits<double>::infinity()
                                                     : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = __builtin_ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    magnitude =
        __builtin_ldexp((1u << format.mantissa_bits) | mantissa, exponent - bias - format.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

// How templates name the two 16-bit formats.
struct HalfFormat {
  SOFTGPU_INLINE static float load(uint16_t v) { return half_to_float(v); }
  SOFTGPU_INLINE static uint16_t store(float v) { return float_to_half(v); }
  static uint16_t store(double v) {
    return static_cast<uint16_t>(round_to_format(v, f16_format, round_nearest_even, false));
  }
};
struct BfloatFormat {
  SOFTGPU_INLINE static float load(uint16_t v) { return bfloat_to_float(v); }
  SOFTGPU_INLINE static uint16_t store(float v) { return float_to_bfloat(v); }
  static uint16_t store(double v) {
    return static_cast<uint16_t>(round_to_format(v, bf16_format, round_nearest_even, false));
  }
};

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA
