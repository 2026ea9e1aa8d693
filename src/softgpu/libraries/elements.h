// Elements of device memory as numbers to compute with, and back: rounded to nearest even, integers
// saturated.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "libraries/operations/element.h"
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::libraries {

using gpupool::operations::Element;

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};
struct E4m3 {
  std::uint8_t bits;
};
struct E5m2 {
  std::uint8_t bits;
};

namespace detail {

/// Of a format of 8 bits with `mantissa` bits behind the point.
inline float small_to_float(std::uint8_t bits, int mantissa, int bias, bool has_infinity) {
  const int exponent_bits = 7 - mantissa;
  const int exponent = bits >> mantissa & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa) - 1);
  const float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
  const int most = (1 << exponent_bits) - 1;
  if (exponent == most && has_infinity) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == most && fraction == (1 << mantissa) - 1) return std::numeric_limits<float>::quiet_NaN();
  const float value =
      exponent == 0 ? static_cast<float>(fraction) : static_cast<float>(fraction + (1 << mantissa));
  return sign * std::ldexp(value, std::max(exponent, 1) - bias - mantissa);
}

template <class T>
T saturated(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<T>(std::clamp(std::nearbyint(value), static_cast<double>(std::numeric_limits<T>::min()),
                                   static_cast<double>(std::numeric_limits<T>::max())));
}

}  // namespace detail

/// `N`: float, double or a complex of them.
template <class N, class T>
N to_number(T value) {
  if constexpr (std::is_same_v<T, Half>) {
    return N(SOFTGPU_ISA::half_to_float(value.bits));
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    return N(SOFTGPU_ISA::bfloat_to_float(value.bits));
  } else if constexpr (std::is_same_v<T, E4m3>) {
    return N(detail::small_to_float(value.bits, 3, 7, false));
  } else if constexpr (std::is_same_v<T, E5m2>) {
    return N(detail::small_to_float(value.bits, 2, 15, true));
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<N, T>) {
    return N(value);
  } else if constexpr (std::is_arithmetic_v<N>) {
    return N(value.real());
  } else {
    return N(static_cast<typename N::value_type>(value.real()),
             static_cast<typename N::value_type>(value.imag()));
  }
}

template <class T, class N>
T to_element(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    if constexpr (std::is_same_v<T, Half>) {
      return {SOFTGPU_ISA::float_to_half(static_cast<float>(value))};
    } else if constexpr (std::is_same_v<T, Bfloat>) {
      return {SOFTGPU_ISA::float_to_bfloat(static_cast<float>(value))};
    } else if constexpr (std::is_same_v<T, E4m3>) {
      return {static_cast<std::uint8_t>(SOFTGPU_ISA::round_to_format(
          static_cast<double>(value), SOFTGPU_ISA::e4m3_format, SOFTGPU_ISA::round_nearest_even, true))};
    } else if constexpr (std::is_same_v<T, E5m2>) {
      return {static_cast<std::uint8_t>(SOFTGPU_ISA::round_to_format(
          static_cast<double>(value), SOFTGPU_ISA::e5m2_format, SOFTGPU_ISA::round_nearest_even, true))};
    } else if constexpr (std::is_integral_v<T>) {
      return detail::saturated<T>(static_cast<double>(value));
    } else {
      return T(value);
    }
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return T(static_cast<typename T::value_type>(value.real()),
             static_cast<typename T::value_type>(value.imag()));
  } else {
    return to_element<T>(value.real());
  }
}

/// Calls f with a value of the type that `type` names; false for a type that nothing is known about.
template <class F>
bool with_type(Element type, F f) {
  switch (type) {
    case Element::f32:
      return f(float{}), true;
    case Element::f64:
      return f(double{}), true;
    case Element::f16:
      return f(Half{}), true;
    case Element::bf16:
      return f(Bfloat{}), true;
    case Element::i8:
      return f(std::int8_t{}), true;
    case Element::u8:
      return f(std::uint8_t{}), true;
    case Element::i32:
      return f(std::int32_t{}), true;
    case Element::c32:
      return f(std::complex<float>{}), true;
    case Element::c64:
      return f(std::complex<double>{}), true;
    case Element::f8_e4m3:
      return f(E4m3{}), true;
    case Element::f8_e5m2:
      return f(E5m2{}), true;
  }
  return false;
}

}  // namespace softgpu::libraries
