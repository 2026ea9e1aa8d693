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
inline constexpr FloatFormat kF16{10, 5}, kBf16{7, 8}, kF32{23, 8}, kF64{52, 11};
inline constexpr FloatFormat kTf32{10, 8, true, true, 13};
inline constexpr FloatFormat kE5m2{2, 5}, kE4m3{3, 4, false};
inline constexpr FloatFormat kE2m3{3, 2, false, false}, kE3m2{2, 3, false, false}, kE2m1{1, 2, false, false};

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
