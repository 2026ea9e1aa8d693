#include "softgpu/reference/exact_float.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace softgpu::reference {
namespace {

using Kind = Number::Kind;

int highest_bit(Bits value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? 63 + std::bit_width(high) : std::bit_width(static_cast<uint64_t>(value)) - 1;
}

Number special(Kind kind, bool negative) {
  Number made;
  made.kind = kind;
  made.negative = negative;
  return made;
}

Number finite(bool negative, Bits significand, int exponent, bool inexact = false) {
  if (significand == 0 && !inexact) return special(Kind::zero, negative);
  Number made;
  made.kind = Kind::finite;
  made.negative = negative;
  made.significand = significand;
  made.exponent = exponent;
  made.inexact = inexact;
  return made;
}

// Moves the highest bit to `place`, to the left only.
Number raised_to(Number value, int place) {
  const int shift = place - highest_bit(value.significand);
  value.significand <<= shift;
  value.exponent -= shift;
  return value;
}

// The whole units after dropping `shift` bits, rounded.
Bits rounded_shift(const Number& value, int shift, Rounding rounding) {
  if (shift <= 0) return value.significand << -shift;
  const Bits kept = shift > 127 ? 0 : value.significand >> shift;
  const Bits rest = shift > 127 ? value.significand : value.significand & ((Bits{1} << shift) - 1);
  const bool anything = rest != 0 || value.inexact;
  if (!anything) return kept;
  // Below, at or above half a unit. From 128 dropped bits on, every significand here is below a half.
  const Bits half = shift > 127 ? 0 : Bits{1} << (shift - 1);
  const bool below = shift > 127 || rest < half;
  const bool tie = !below && rest == half && !value.inexact;
  switch (rounding) {
    case Rounding::zero:
      return kept;
    case Rounding::down:
      return value.negative ? kept + 1 : kept;
    case Rounding::up:
      return value.negative ? kept : kept + 1;
    case Rounding::nearest_away:
      return below ? kept : kept + 1;
    default:
      return below || (tie && (kept & 1) == 0) ? kept : kept + 1;
  }
}

int bias_of(const FloatFormat& format) {
  return (1 << (format.exponent_bits - 1)) - 1;
}
uint64_t all_exponent_bits(const FloatFormat& format) {
  return ((uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits;
}
uint64_t largest_finite(const FloatFormat& format) {
  const uint64_t everything = (uint64_t{1} << (format.exponent_bits + format.fraction_bits)) - 1;
  if (format.has_infinity) return all_exponent_bits(format) - 1;
  return format.has_nan ? everything - 1 : everything;
}
uint64_t sign_bit(const FloatFormat& format) {
  return uint64_t{1} << (format.exponent_bits + format.fraction_bits);
}

}  // namespace

uint64_t canonical_nan(const FloatFormat& format) {
  return (sign_bit(format) - 1) << format.low_zero_bits;
}

bool is_subnormal(uint64_t bits, const FloatFormat& format) {
  bits >>= format.low_zero_bits;
  return (bits & all_exponent_bits(format)) == 0 && (bits & (sign_bit(format) - 1)) != 0;
}

bool is_nan(uint64_t bits, const FloatFormat& format) {
  return unpack(bits, format).is_nan();
}

Number unpack(uint64_t bits, const FloatFormat& format) {
  bits >>= format.low_zero_bits;
  const bool negative = (bits & sign_bit(format)) != 0;
  const uint64_t fraction = bits & ((uint64_t{1} << format.fraction_bits) - 1);
  const auto field = static_cast<int>((bits & all_exponent_bits(format)) >> format.fraction_bits);
  const int highest = (1 << format.exponent_bits) - 1, bias = bias_of(format);
  if (field == highest && format.has_infinity)
    return special(fraction == 0 ? Kind::infinite : Kind::nan, negative);
  if (format.has_nan && !format.has_infinity && (bits & (sign_bit(format) - 1)) == sign_bit(format) - 1) {
    return special(Kind::nan, negative);
  }
  if (field == 0) return finite(negative, fraction, 1 - bias - format.fraction_bits);
  return finite(negative, fraction | uint64_t{1} << format.fraction_bits,
                field - bias - format.fraction_bits);
}

uint64_t pack(const Number& value, const FloatFormat& format, Rounding rounding, bool stay_finite) {
  const uint64_t sign = value.negative ? sign_bit(format) : 0, largest = largest_finite(format);
  const auto placed = [&](uint64_t magnitude) { return (sign | magnitude) << format.low_zero_bits; };
  const uint64_t beyond = format.has_infinity ? all_exponent_bits(format) : sign_bit(format) - 1;
  switch (value.kind) {
    case Kind::nan:
      return canonical_nan(format);
    case Kind::infinite:
      return placed(stay_finite ? largest : beyond);
    case Kind::zero:
      return placed(0);
    default:
      break;
  }
  const int bias = bias_of(format), smallest = 1 - bias;
  const int exponent = value.exponent + highest_bit(value.significand);
  const int unit = (exponent < smallest ? smallest : exponent) - format.fraction_bits;
  const Bits kept = rounded_shift(value, unit - value.exponent, rounding);
  const bool toward_zero = rounding == Rounding::zero || (rounding == Rounding::down && !value.negative) ||
                           (rounding == Rounding::up && value.negative);
  const uint64_t overflow = stay_finite || toward_zero ? largest : beyond;
  if (exponent > bias + 1) return placed(overflow);
  // A carry out of the fraction raises the exponent by itself, also from the subnormal numbers.
  const uint64_t below =
      exponent < smallest ? 0 : static_cast<uint64_t>(exponent + bias - 1) << format.fraction_bits;
  const uint64_t magnitude = below + static_cast<uint64_t>(kept);
  return placed(magnitude > largest ? overflow : magnitude);
}

Number add(const Number& a, const Number& b, Rounding rounding) {
  if (a.is_nan() || b.is_nan()) return special(Kind::nan, false);
  if (a.kind == Kind::infinite || b.kind == Kind::infinite) {
    if (a.kind == b.kind && a.negative != b.negative) return special(Kind::nan, false);
    return a.kind == Kind::infinite ? a : b;
  }
  const bool zero_sign = rounding == Rounding::down;
  if (a.kind == Kind::zero && b.kind == Kind::zero) {
    return special(Kind::zero, a.negative == b.negative ? a.negative : zero_sign);
  }
  if (a.kind == Kind::zero) return b;
  if (b.kind == Kind::zero) return a;
  // Both with their highest bit at one place: operands have 106 bits at most, so that nothing is lost when
  // they cancel, and what is shifted out below matters only as "not zero".
  Number x = raised_to(a, 124), y = raised_to(b, 124);
  if (y.exponent > x.exponent || (y.exponent == x.exponent && y.significand > x.significand)) std::swap(x, y);
  const int distance = x.exponent - y.exponent;
  const Bits aligned = distance > 127 ? 0 : y.significand >> distance;
  const bool lost = distance > 127 || (aligned << distance) != y.significand;
  if (x.negative == y.negative) return finite(x.negative, x.significand + aligned, x.exponent, lost);
  const Bits difference = x.significand - aligned - (lost ? 1 : 0);
  if (difference == 0 && !lost) return special(Kind::zero, zero_sign);
  return finite(x.negative, difference, x.exponent, lost);
}

Number multiply(const Number& a, const Number& b) {
  const bool negative = a.negative != b.negative;
  if (a.is_nan() || b.is_nan()) return special(Kind::nan, false);
  if (a.kind == Kind::infinite || b.kind == Kind::infinite) {
    const bool with_zero = a.kind == Kind::zero || b.kind == Kind::zero;
    return special(with_zero ? Kind::nan : Kind::infinite, negative);
  }
  if (a.kind == Kind::zero || b.kind == Kind::zero) return special(Kind::zero, negative);
  return finite(negative, a.significand * b.significand, a.exponent + b.exponent);
}

Number divide(const Number& a, const Number& b) {
  const bool negative = a.negative != b.negative;
  if (a.is_nan() || b.is_nan()) return special(Kind::nan, false);
  if (a.kind == b.kind && a.kind != Kind::finite) return special(Kind::nan, false);
  if (a.kind == Kind::infinite || b.kind == Kind::zero) return special(Kind::infinite, negative);
  if (a.kind == Kind::zero || b.kind == Kind::infinite) return special(Kind::zero, negative);
  const Number numerator = raised_to(a, 126);
  const Bits quotient = numerator.significand / b.significand;
  const bool rest = quotient * b.significand != numerator.significand;
  return finite(negative, quotient, numerator.exponent - b.exponent, rest);
}

Number square_root(const Number& a) {
  if (a.kind == Kind::zero || a.is_nan()) return a;
  if (a.negative) return special(Kind::nan, false);
  if (a.kind == Kind::infinite) return a;
  Number raised = raised_to(a, 125);
  if (raised.exponent % 2 != 0) {
    raised.significand >>= 1;  // has at most 53 bits of its own: nothing is lost
    ++raised.exponent;
  }
  Bits root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Bits larger = root | Bits{1} << bit;
    if (larger * larger <= raised.significand) root = larger;
  }
  return finite(false, root, raised.exponent / 2, root * root != raised.significand);
}

Number negate(Number a) {
  a.negative = !a.negative;
  return a;
}

Number from_integer(__int128 value) {
  return finite(value < 0, value < 0 ? Bits{0} - static_cast<Bits>(value) : static_cast<Bits>(value), 0);
}

__int128 round_to_integer(const Number& value, Rounding rounding) {
  if (value.kind == Kind::zero) return 0;
  const auto magnitude = static_cast<__int128>(rounded_shift(value, -value.exponent, rounding));
  return value.negative ? -magnitude : magnitude;
}

int compare(const Number& a, const Number& b) {
  if (a.kind == Kind::infinite && b.kind == Kind::infinite && a.negative == b.negative) return 0;
  const Number difference = add(a, negate(b), Rounding::nearest_even);
  if (difference.kind == Kind::zero) return 0;
  return difference.negative ? -1 : 1;
}

long double to_long_double(const Number& value) {
  long double magnitude = 0;
  if (value.kind == Kind::nan) return std::numeric_limits<long double>::quiet_NaN();
  if (value.kind == Kind::infinite) magnitude = std::numeric_limits<long double>::infinity();
  if (value.kind == Kind::finite) {
    magnitude = std::ldexp(static_cast<long double>(value.significand), value.exponent);
  }
  return value.negative ? -magnitude : magnitude;
}

Number from_long_double(long double value) {
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return special(Kind::nan, false);
  if (std::isinf(value)) return special(Kind::infinite, negative);
  if (value == 0) return special(Kind::zero, negative);
  int exponent = 0;
  const long double fraction = std::frexp(std::fabs(value), &exponent);
  return finite(negative, static_cast<Bits>(std::ldexp(fraction, 64)), exponent - 64);
}

}  // namespace softgpu::reference
