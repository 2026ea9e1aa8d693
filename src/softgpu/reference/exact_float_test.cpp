// The reference's arithmetic against the processor's, in every rounding mode.
#include <doctest/doctest.h>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>

#include "softgpu/reference/exact_float.h"

namespace softgpu::reference {
namespace {

template <class T>
struct Traits;
template <>
struct Traits<float> {
  using Word = uint32_t;
  static constexpr const FloatFormat& format = f32_format;
};
template <>
struct Traits<double> {
  using Word = uint64_t;
  static constexpr const FloatFormat& format = f64_format;
};

template <class T>
Number number(T value) {
  typename Traits<T>::Word bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return unpack(bits, Traits<T>::format);
}

// Values near each other in size, so that sums cancel and round, with specials among them.
template <class T>
T any(std::mt19937_64& random) {
  using Word = typename Traits<T>::Word;
  constexpr int fraction_bits = Traits<T>::format.fraction_bits;
  const Word bias = (Word{1} << (Traits<T>::format.exponent_bits - 1)) - 1;
  Word bits = static_cast<Word>(random());
  if (random() % 4 != 0) {
    const Word exponent = random() % 8 == 0 ? random() % 3 : bias - 8 + static_cast<Word>(random() % 16);
    bits = (bits & ((Word{1} << fraction_bits) - 1)) | exponent << fraction_bits |
           (static_cast<Word>(random() & 1) << (8 * sizeof(T) - 1));
  }
  if (random() % 4 == 0) bits &= ~((Word{1} << (fraction_bits - 3)) - 1);
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class T>
void agree(const Number& exact, T computed, Rounding rounding) {
  if (std::isnan(computed)) {
    CHECK(exact.is_nan());
    return;
  }
  typename Traits<T>::Word bits;
  std::memcpy(&bits, &computed, sizeof(bits));
  CHECK(pack(exact, Traits<T>::format, rounding) == bits);
}

template <class T>
void compare_with_processor() {
  struct Mode {
    Rounding rounding;
    int processor;
  };
  std::mt19937_64 random(7);
  for (const Mode mode : {Mode{Rounding::nearest_even, FE_TONEAREST}, Mode{Rounding::zero, FE_TOWARDZERO},
                          Mode{Rounding::down, FE_DOWNWARD}, Mode{Rounding::up, FE_UPWARD}}) {
    for (int i = 0; i < 20000; ++i) {
      const T a = any<T>(random), b = any<T>(random), c = any<T>(random);
      volatile T x = a, y = b, z = c;
      std::fesetround(mode.processor);
      volatile T sum = x + y, product = x * y, quotient = x / y, root = std::sqrt(x),
                 fused = std::fma(x, y, z);
      std::fesetround(FE_TONEAREST);
      const Number na = number(a), nb = number(b), nc = number(c);
      agree<T>(add(na, nb, mode.rounding), sum, mode.rounding);
      agree<T>(multiply(na, nb), product, mode.rounding);
      agree<T>(divide(na, nb), quotient, mode.rounding);
      agree<T>(square_root(na), root, mode.rounding);
      agree<T>(add(multiply(na, nb), nc, mode.rounding), fused, mode.rounding);
    }
  }
}

TEST_CASE("reference arithmetic agrees with the processor in single precision") {
  compare_with_processor<float>();
}
TEST_CASE("reference arithmetic agrees with the processor in double precision") {
  compare_with_processor<double>();
}

TEST_CASE("a small format's value survives unpacking and packing, and NaN is one") {
  for (const FloatFormat* const format :
       {&f16_format, &bf16_format, &e4m3_format, &e5m2_format, &e2m3_format, &e3m2_format, &e2m1_format}) {
    for (uint64_t bits = 0; bits < uint64_t{1} << format->total_bits(); ++bits) {
      const Number value = unpack(bits, *format);
      CHECK(pack(value, *format, Rounding::nearest_even) == (value.is_nan() ? canonical_nan(*format) : bits));
    }
  }
}

TEST_CASE("what is too large becomes infinity or the largest number, as the rounding says") {
  const Number huge = multiply(from_integer(1 << 20), from_integer(1));
  CHECK(pack(huge, f16_format, Rounding::nearest_even) == 0x7c00);
  CHECK(pack(huge, f16_format, Rounding::zero) == 0x7bff);
  CHECK(pack(huge, f16_format, Rounding::nearest_even, true) == 0x7bff);
  CHECK(pack(negate(huge), f16_format, Rounding::up) == 0xfbff);
  CHECK(pack(huge, e4m3_format, Rounding::nearest_even, true) == 0x7e);
}

}  // namespace
}  // namespace softgpu::reference
