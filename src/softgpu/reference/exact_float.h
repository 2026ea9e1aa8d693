// Floating-point arithmetic from its definition: operands are taken apart into integers, the exact result is
// formed, and it is rounded once into the wanted format. No floating-point instruction takes part, so that
// nothing that a compiler or a processor does to the interpreter's arithmetic happens here too.
#pragma once

#include <cstdint>

namespace softgpu::reference {

using Bits = unsigned __int128;

struct FloatFormat {
  int fraction_bits;
  int exponent_bits;
  bool has_infinity = true;  // else the largest exponent holds numbers too
  bool has_nan = true;
  int low_zero_bits = 0;  // tf32: 19 bits at the top of a 32-bit register
  [[nodiscard]] constexpr int total_bits() const { return 1 + exponent_bits + fraction_bits + low_zero_bits; }
};
inline constexpr FloatFormat f16_format{10, 5}, bf16_format{7, 8}, f32_format{23, 8}, f64_format{52, 11};
inline constexpr FloatFormat tf32_format{10, 8, true, true, 13};
inline constexpr FloatFormat e5m2_format{2, 5}, e4m3_format{3, 4, false};
inline constexpr FloatFormat e2m3_format{3, 2, false, false}, e3m2_format{2, 3, false, false},
    e2m1_format{1, 2, false, false};

enum class Rounding : uint8_t { nearest_even, zero, down, up, nearest_away };

// significand * 2^exponent, plus less than one unit where `inexact`.
struct Number {
  enum class Kind : uint8_t { zero, finite, infinite, nan } kind = Kind::zero;
  bool negative = false;
  int exponent = 0;
  Bits significand = 0;
  bool inexact = false;

  [[nodiscard]] bool is_nan() const { return kind == Kind::nan; }
};

[[nodiscard]] Number unpack(uint64_t bits, const FloatFormat& format);
// Rounds once. A NaN becomes the canonical one. With `stay_finite` what is too large, and infinity, becomes
// the largest finite number.
[[nodiscard]] uint64_t pack(const Number& value, const FloatFormat& format, Rounding rounding,
                            bool stay_finite = false);
[[nodiscard]] uint64_t canonical_nan(const FloatFormat& format);
// Subnormal in this format.
[[nodiscard]] bool is_subnormal(uint64_t bits, const FloatFormat& format);
[[nodiscard]] bool is_nan(uint64_t bits, const FloatFormat& format);

// `rounding` decides the sign of a sum that is exactly zero.
[[nodiscard]] Number add(const Number& a, const Number& b, Rounding rounding);
[[nodiscard]] Number multiply(const Number& a, const Number& b);
[[nodiscard]] Number divide(const Number& a, const Number& b);
[[nodiscard]] Number square_root(const Number& a);
[[nodiscard]] Number negate(Number a);
[[nodiscard]] Number from_integer(__int128 value);
// The integer that rounding to one gives; only for what is finite and below 2^100 in magnitude.
[[nodiscard]] __int128 round_to_integer(const Number& value, Rounding rounding);
// -1, 0, 1; neither may be NaN.
[[nodiscard]] int compare(const Number& a, const Number& b);

// For the functions that PTX defines by an error bound only.
[[nodiscard]] long double to_long_double(const Number& value);
[[nodiscard]] Number from_long_double(long double value);

}  // namespace softgpu::reference
