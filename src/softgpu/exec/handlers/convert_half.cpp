// cvt from and to f16, bf16, tf32 and ue8m0.
#include <cmath>

#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

template <class F>
constexpr Format format_of() {
  return std::is_same_v<F, HalfFormat> ? f16_format : bf16_format;
}
template <class F>
constexpr uint16_t smallest_normal() {
  return std::is_same_v<F, HalfFormat> ? 0x0400 : 0x0080;
}

// aux as in rounding.h; bit 6: overflow gives the largest finite number (.satfinite)
inline constexpr uint32_t finite_flag = 64;

template <class F, class S>
SOFTGPU_INLINE uint16_t narrow(S value, uint32_t aux) {
  if ((aux & ftz_flag) && std::is_same_v<S, float>) value = static_cast<S>(flush(static_cast<float>(value)));
  uint16_t result;
  if (std::is_same_v<S, float> && (aux & (7 | finite_flag)) == 0) {
    result = F::store(static_cast<float>(value));
  } else {
    result = static_cast<uint16_t>(
        round_to_format(static_cast<double>(value), format_of<F>(), aux & 7, aux & finite_flag));
  }
  const bool nan = value != value;
  if (aux & sat_flag) return nan || result & 0x8000 ? 0 : value > S(1) ? F::store(1.0f) : result;
  if ((aux & relu_flag) && !nan && (result & 0x8000)) return 0;
  return result;
}

template <class F, class S>
void float_to_small(Warp& warp, const Instruction& in) {
  const S* const a = reg<S>(warp, in.op[1]);
  const uint32_t aux = in.aux;
  if (aux == 0 && std::is_same_v<S, float>) {
    write<uint16_t>(warp, in.op[0], [=](uint32_t i) { return F::store(static_cast<float>(a[i])); });
  } else {
    uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
    each_active(warp, [=](uint32_t i) { d[i] = narrow<F>(a[i], aux); });
  }
}
// cvt.rn.f16x2.f32 d, a, b: a in the upper half.
template <class F>
void floats_to_pair(Warp& warp, const Instruction& in) {
  const float* const a = reg<float>(warp, in.op[1]);
  const float* const b = reg<float>(warp, in.op[2]);
  const uint32_t aux = in.aux;
  if (aux == 0) {
    write<uint32_t>(warp, in.op[0],
                    [=](uint32_t i) { return uint32_t{F::store(a[i])} << 16 | F::store(b[i]); });
  } else {
    uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
    each_active(warp,
                [=](uint32_t i) { d[i] = uint32_t{narrow<F>(a[i], aux)} << 16 | narrow<F>(b[i], aux); });
  }
}
template <class F, class D>
void small_to_float(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  const bool sat = in.aux & sat_flag, ftz = in.aux & ftz_flag;
  write<D>(warp, in.op[0], [=](uint32_t i) {
    float value = F::load(a[i]);
    if (ftz) value = flush(value);
    return static_cast<D>(sat ? saturate_unit(value) : value);
  });
}
template <class F>
void small_to_integral(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t aux = in.aux;
  each_active(warp, [=](uint32_t i) {
    const float value = F::load(a[i]);
    const uint32_t mode = aux & 7;
    const float rounded = aux & 0x100                 ? value
                          : mode == round_toward_zero ? std::trunc(value)
                          : mode == round_down        ? std::floor(value)
                          : mode == round_up          ? std::ceil(value)
                                                      : std::nearbyint(value);
    d[i] = F::store(aux & sat_flag ? saturate_unit(rounded) : rounded);
  });
}

template <class T>
using Container =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <class F, class D>
void small_to_integer(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  Container<D>* const d = reg<Container<D>>(warp, in.op[0]);
  const uint32_t mode = in.aux & 7;
  each_active(warp, [=](uint32_t i) {
    const double value = F::load(a[i]);
    const double rounded = mode == round_toward_zero ? std::trunc(value)
                           : mode == round_down      ? std::floor(value)
                           : mode == round_up        ? std::ceil(value)
                                                     : std::nearbyint(value);
    constexpr double past_highest = static_cast<double>(std::numeric_limits<D>::max() / 2 + 1) * 2.0;
    constexpr double lowest = static_cast<double>(std::numeric_limits<D>::min());
    D result = 0;
    if (value != value)  // the highest bit alone in 64 bits, as everywhere
      result = sizeof(D) == 8 ? static_cast<D>(std::make_unsigned_t<D>{1} << (8 * sizeof(D) - 1)) : D(0);
    else if (rounded >= past_highest)
      result = std::numeric_limits<D>::max();
    else if (rounded < lowest)
      result = std::numeric_limits<D>::min();
    else
      result = static_cast<D>(rounded);
    d[i] = static_cast<Container<D>>(result);
  });
}
template <class F, class S>
void integer_to_small(Warp& warp, const Instruction& in) {
  const Container<S>* const a = reg<Container<S>>(warp, in.op[1]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t mode = in.aux & 7;
  each_active(warp, [=](uint32_t i) {
    const S value = static_cast<S>(a[i]);
    // A 64-bit integer may not fit a double. Round to odd: then rounding again is as good as once.
    double wide = static_cast<double>(value);
    if constexpr (sizeof(S) == 8) {
      const bool negative = std::is_signed_v<S> && value < 0;
      const uint64_t magnitude =
          negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
      const uint64_t sticky = (magnitude & 0x7ff) != 0 && magnitude >> 53 != 0 ? 0x800 : 0;
      const uint64_t kept = magnitude >> 53 != 0 ? (magnitude & ~uint64_t{0x7ff}) | sticky : magnitude;
      wide = negative ? -static_cast<double>(kept) : static_cast<double>(kept);
    }
    d[i] = static_cast<uint16_t>(round_to_format(wide, format_of<F>(), mode, false));
  });
}
template <class To, class From>
void small_to_small(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t aux = in.aux;
  each_active(warp, [=](uint32_t i) { d[i] = narrow<To>(From::load(a[i]), aux); });
}

// tf32: 10 mantissa bits in an f32.
void to_tf32(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  const uint32_t mode = in.aux & 7;
  const bool relu = in.aux & relu_flag, finite = in.aux & finite_flag;
  write<uint32_t>(warp, in.op[0], [=](uint32_t i) {
    const uint32_t v = a[i], sign = v & 0x80000000u;
    if ((v & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
    if (relu && sign) return 0u;
    const uint32_t extra = (v & 0x7f800000u) == 0x7f800000u ? 0u
                           : mode == round_nearest_away     ? 0x1000u
                           : mode == round_nearest_even     ? 0xfffu + (v >> 13 & 1)
                                                            : 0u;
    const uint32_t rounded = (v + extra) & ~0x1fffu;
    return finite && (rounded & 0x7fffffffu) >= 0x7f800000u ? sign | 0x7f7fe000u : rounded;
  });
}

// ue8m0: a power of two, 2^(bits - 127), or NaN (255); no sign, no zero. A value that it cannot hold is
// rounded down to a power of two or up, never below 2^-127.
uint32_t magnitude_to_exponent(uint32_t float_bits, uint32_t mode, bool finite) {
  const uint32_t magnitude = float_bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0xff;
  uint32_t exponent = magnitude >> 23;
  const bool inexact = (magnitude & 0x7fffffu) != 0 && magnitude > 0x400000u;  // 0x400000 is 2^-127
  if (mode == round_up && inexact) ++exponent;
  return exponent == 0xff && finite ? 0xfe : exponent;
}
uint32_t exponent_to_bfloat(uint32_t exponent) {
  return exponent == 0xff ? 0x7fff : exponent == 0 ? 0x40 : exponent << 7;
}
// cvt.{rz,rp}{.satfinite}.ue8m0x2.f32 d, a, b
void floats_to_exponents(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  const uint32_t* const b = reg<uint32_t>(warp, in.op[2]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t mode = in.aux & 7;
  const bool finite = in.aux & finite_flag;
  each_active(warp, [=](uint32_t i) {
    d[i] = static_cast<uint16_t>(magnitude_to_exponent(a[i], mode, finite) << 8 |
                                 magnitude_to_exponent(b[i], mode, finite));
  });
}
// cvt.{rz,rp}{.satfinite}.ue8m0x2.bf16x2 d, a
void bfloats_to_exponents(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t mode = in.aux & 7;
  const bool finite = in.aux & finite_flag;
  each_active(warp, [=](uint32_t i) {
    d[i] = static_cast<uint16_t>(magnitude_to_exponent(a[i] & 0xffff0000u, mode, finite) << 8 |
                                 magnitude_to_exponent(a[i] << 16, mode, finite));
  });
}
// cvt.rn.bf16x2.ue8m0x2 d, a
void exponents_to_bfloats(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
  each_active(warp, [=](uint32_t i) {
    d[i] = exponent_to_bfloat(a[i] >> 8) << 16 | exponent_to_bfloat(a[i] & 0xffu);
  });
}

inline constexpr const char* small_rounding_names[] = {".rn", ".rz", ".rm", ".rp", ".rna"};
inline constexpr const char* small_integral_rounding_names[] = {".rni", ".rzi", ".rmi", ".rpi"};

template <class F, class I>
void register_integer_pair(OpcodeTable& table, const std::string& f) {
  const std::string i = (std::is_signed_v<I> ? ".s" : ".u") + std::to_string(8 * sizeof(I));
  const char* const to_integer = sizeof(I) <= 2 ? "h=h" : sizeof(I) == 4 ? "w=h" : "x=h";
  const char* const from_integer = sizeof(I) <= 2 ? "h=h" : sizeof(I) == 4 ? "h=w" : "h=x";
  for (uint32_t mode = 0; mode < 4; ++mode) {
    table.add(std::string("cvt") + small_integral_rounding_names[mode] + "{.ftz,}{.sat,}" + i + f, to_integer,
              small_to_integer<F, I>, mode);
    table.add(std::string("cvt") + small_rounding_names[mode] + f + i, from_integer, integer_to_small<F, I>,
              mode);
  }
}

template <class F>
void register_format(OpcodeTable& table, const std::string& f) {
  register_integer_pair<F, uint8_t>(table, f);
  register_integer_pair<F, int8_t>(table, f);
  register_integer_pair<F, uint16_t>(table, f);
  register_integer_pair<F, int16_t>(table, f);
  register_integer_pair<F, uint32_t>(table, f);
  register_integer_pair<F, int32_t>(table, f);
  register_integer_pair<F, uint64_t>(table, f);
  register_integer_pair<F, int64_t>(table, f);
  for (uint32_t mode = 0; mode < 4; ++mode) {
    const std::string cvt = std::string("cvt") + small_rounding_names[mode];
    table.add(cvt + f + ".f32", "h=w", float_to_small<F, float>, mode);
    table.add(cvt + f + ".f64", "h=x", float_to_small<F, double>, mode);
    table.add(cvt + ".ftz" + f + ".f32", "h=w", float_to_small<F, float>, mode | ftz_flag);
    table.add(cvt + ".sat" + f + ".f32", "h=w", float_to_small<F, float>, mode | sat_flag);
    table.add(cvt + ".ftz.sat" + f + ".f32", "h=w", float_to_small<F, float>, mode | sat_flag | ftz_flag);
    table.add(cvt + ".relu" + f + ".f32", "h=w", float_to_small<F, float>, mode | relu_flag);
    table.add(cvt + ".satfinite" + f + ".f32", "h=w", float_to_small<F, float>, mode | finite_flag);
    table.add(cvt + ".relu.satfinite" + f + ".f32", "h=w", float_to_small<F, float>,
              mode | relu_flag | finite_flag);
    table.add(cvt + f + "x2.f32", "w=ww", floats_to_pair<F>, mode);
    table.add(cvt + ".relu" + f + "x2.f32", "w=ww", floats_to_pair<F>, mode | relu_flag);
    table.add(cvt + ".satfinite" + f + "x2.f32", "w=ww", floats_to_pair<F>, mode | finite_flag);
    table.add(cvt + ".relu.satfinite" + f + "x2.f32", "w=ww", floats_to_pair<F>,
              mode | relu_flag | finite_flag);
    table.add(std::string("cvt") + small_integral_rounding_names[mode] + "{.ftz,}" + f + f, "h=h",
              small_to_integral<F>, mode);
    table.add(std::string("cvt") + small_integral_rounding_names[mode] + "{.ftz,}.sat" + f + f, "h=h",
              small_to_integral<F>, mode | sat_flag);
  }
  table.add("cvt.sat" + f + f, "h=h", small_to_integral<F>, sat_flag | 0x100);
  table.add("cvt.f32" + f, "w=h", small_to_float<F, float>);
  table.add("cvt.ftz.f32" + f, "w=h", small_to_float<F, float>, ftz_flag);
  table.add("cvt.sat.f32" + f, "w=h", small_to_float<F, float>, sat_flag);
  table.add("cvt.ftz.sat.f32" + f, "w=h", small_to_float<F, float>, ftz_flag | sat_flag);
  table.add("cvt.f64" + f, "x=h", small_to_float<F, double>);
}

}  // namespace

void register_convert_half(OpcodeTable& table) {
  register_format<HalfFormat>(table, ".f16");
  register_format<BfloatFormat>(table, ".bf16");
  for (uint32_t mode = 0; mode < 4; ++mode) {
    table.add(std::string("cvt") + small_rounding_names[mode] + ".bf16.f16", "h=h",
              small_to_small<BfloatFormat, HalfFormat>, mode);
    table.add(std::string("cvt") + small_rounding_names[mode] + ".f16.bf16", "h=h",
              small_to_small<HalfFormat, BfloatFormat>, mode);
  }
  // Triton's way from fp8 to bf16 names no rounding: all that it converts fits. A value that does not is
  // rounded to nearest even.
  table.add("cvt.bf16.f16", "h=h", small_to_small<BfloatFormat, HalfFormat>, round_nearest_even);
  for (uint32_t mode :
       {uint32_t{round_nearest_even}, uint32_t{round_toward_zero}, uint32_t{round_nearest_away}}) {
    const std::string cvt = std::string("cvt") + small_rounding_names[mode];
    table.add(cvt + ".tf32.f32", "w=w", to_tf32, mode);
    table.add(cvt + ".satfinite.tf32.f32", "w=w", to_tf32, mode | finite_flag);
    if (mode == round_nearest_away) continue;
    table.add(cvt + ".relu.tf32.f32", "w=w", to_tf32, mode | relu_flag);
    table.add(cvt + ".relu.satfinite.tf32.f32", "w=w", to_tf32, mode | relu_flag | finite_flag);
  }
  for (uint32_t mode : {uint32_t{round_toward_zero}, uint32_t{round_up}}) {
    const std::string cvt = std::string("cvt") + small_rounding_names[mode];
    table.add(cvt + ".ue8m0x2.f32", "h=ww", floats_to_exponents, mode);
    table.add(cvt + ".satfinite.ue8m0x2.f32", "h=ww", floats_to_exponents, mode | finite_flag);
    table.add(cvt + ".ue8m0x2.bf16x2", "h=w", bfloats_to_exponents, mode);
    table.add(cvt + ".satfinite.ue8m0x2.bf16x2", "h=w", bfloats_to_exponents, mode | finite_flag);
  }
  table.add("cvt.rn.bf16x2.ue8m0x2", "w=h", exponents_to_bfloats);
}

}  // namespace softgpu::SOFTGPU_ISA
