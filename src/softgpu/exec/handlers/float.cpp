// f32 and f64: add sub mul fma (mad) div sqrt rcp with every rounding mode, neg abs min max copysign testp.
#include <cmath>

#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Add {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    return a / b;
  }
};
struct Fma {
  SOFTGPU_INLINE static float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  SOFTGPU_INLINE static double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Sqrt {
  SOFTGPU_INLINE static float apply(float a) { return __builtin_sqrtf(a); }
  SOFTGPU_INLINE static double apply(double a) { return __builtin_sqrt(a); }
};
struct Reciprocal {
  template <class T>
  SOFTGPU_INLINE static T apply(T a) {
    return T(1) / a;
  }
};

template <class Op>
struct Flushed {
  template <class... T>
  SOFTGPU_INLINE static auto apply(T... a) {
    return flush(Op::apply(flush(a)...));
  }
};

// The general form: any rounding mode, .ftz and .sat from aux.
template <class Op, class T, int sources>
void rounded(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const T* const b = reg<T>(warp, in.op[sources > 1 ? 2 : 1]);
  const T* const c = reg<T>(warp, in.op[sources > 2 ? 3 : 1]);
  const bool ftz = in.aux & ftz_flag, sat = in.aux & sat_flag;
  const RoundingScope scope(in.aux & 7);
  write<T>(warp, in.op[0], [=](uint32_t i) {
    const T x = ftz ? flush(a[i]) : a[i];
    T result;
    if constexpr (sources == 1) {
      result = Op::apply(x);
    } else if constexpr (sources == 2) {
      result = Op::apply(x, ftz ? flush(b[i]) : b[i]);
    } else {
      result = Op::apply(x, ftz ? flush(b[i]) : b[i], ftz ? flush(c[i]) : c[i]);
    }
    if (ftz) result = flush(result);
    return sat ? saturate_unit(result) : result;
  });
}

template <class Op, class T, int sources>
void register_rounded(OpcodeTable& table, const std::string& name, const char* type, bool with_saturation) {
  static constexpr const char* signatures[2][3] = {{"w=w", "w=ww", "w=www"}, {"x=x", "x=xx", "x=xxx"}};
  const char* const signature = signatures[sizeof(T) == 8][sources - 1];
  static constexpr const char* mode_names[] = {".rn", ".rz", ".rm", ".rp"};
  const bool single = sizeof(T) == 4;
  for (uint32_t mode = 0; mode < 4; ++mode) {
    for (uint32_t ftz = 0; ftz <= (single ? 1u : 0u); ++ftz) {
      for (uint32_t sat = 0; sat <= (single && with_saturation ? 1u : 0u); ++sat) {
        const std::string full = name + mode_names[mode] + (ftz ? ".ftz" : "") + (sat ? ".sat" : "") + type;
        table.add(full, signature, rounded<Op, T, sources>,
                  mode | (ftz ? ftz_flag : 0) | (sat ? sat_flag : 0));
      }
    }
  }
}

// Without a rounding suffix add, sub and mul round to nearest even (and we never contract them).
template <class Op>
void register_arithmetic(OpcodeTable& table, const std::string& name) {
  register_rounded<Op, float, 2>(table, name, ".f32", true);
  register_rounded<Op, double, 2>(table, name, ".f64", false);
  table.add(name + "{.rn,}.f32", "w=ww", binary<Op, float, float>);
  table.add(name + "{.rn,}.ftz.f32", "w=ww", binary<Flushed<Op>, float, float>);
  table.add(name + ".sat.f32", "w=ww", rounded<Op, float, 2>, sat_flag);
  table.add(name + ".ftz.sat.f32", "w=ww", rounded<Op, float, 2>, sat_flag | ftz_flag);
  table.add(name + "{.rn,}.f64", "x=xx", binary<Op, double, double>);
}

struct Negate {
  template <class T>
  SOFTGPU_INLINE static T apply(T a) {
    return -a;
  }
};
struct Absolute {
  template <class T>
  SOFTGPU_INLINE static T apply(T a) {
    return std::abs(a);
  }
};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
constexpr Bits<T> sign_mask = Bits<T>{1} << (8 * sizeof(T) - 1);
template <class T>
constexpr T canonical_nan =
    std::bit_cast<T>(static_cast<Bits<T>>(sizeof(T) == 8 ? 0x7fffffffffffffffull : 0x7fffffffull));

// A NaN loses against a number, unless nan_wins; -0 is less than +0.
template <bool maximum, bool nan_wins>
struct Extremum {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    const auto x = std::bit_cast<Bits<T>>(a), y = std::bit_cast<Bits<T>>(b);
    const T zeros = std::bit_cast<T>(maximum ? x & y : x | y);  // also right for equal numbers
    T result = a == b ? zeros : (maximum ? a > b : a < b) ? a : b;
    const bool nan_a = a != a, nan_b = b != b;
    if constexpr (nan_wins) {
      return nan_a || nan_b ? canonical_nan<T> : result;
    } else {
      result = nan_a ? b : nan_b ? a : result;
      return nan_a && nan_b ? canonical_nan<T> : result;
    }
  }
};
// .xorsign.abs: magnitudes are compared, the result takes the xor of the signs.
template <class Op>
struct XorSignAbs {
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    const auto sign = (std::bit_cast<Bits<T>>(a) ^ std::bit_cast<Bits<T>>(b)) & sign_mask<T>;
    const auto magnitude = std::bit_cast<Bits<T>>(Op::apply(std::abs(a), std::abs(b)));
    return std::bit_cast<T>(static_cast<Bits<T>>((magnitude & ~sign_mask<T>) | sign));
  }
};
struct CopySign {  // copysign d, a, b: the sign of a, the magnitude of b
  template <class T>
  SOFTGPU_INLINE static T apply(T a, T b) {
    return std::copysign(b, a);
  }
};

template <bool maximum>
void register_extremum(OpcodeTable& table, const std::string& name) {
  using Plain = Extremum<maximum, false>;
  using Nan = Extremum<maximum, true>;
  table.add(name + ".f32", "w=ww", binary<Plain, float, float>);
  table.add(name + ".ftz.f32", "w=ww", binary<Flushed<Plain>, float, float>);
  table.add(name + ".NaN.f32", "w=ww", binary<Nan, float, float>);
  table.add(name + ".ftz.NaN.f32", "w=ww", binary<Flushed<Nan>, float, float>);
  table.add(name + ".xorsign.abs.f32", "w=ww", binary<XorSignAbs<Plain>, float, float>);
  table.add(name + ".ftz.xorsign.abs.f32", "w=ww", binary<Flushed<XorSignAbs<Plain>>, float, float>);
  table.add(name + ".NaN.xorsign.abs.f32", "w=ww", binary<XorSignAbs<Nan>, float, float>);
  table.add(name + ".ftz.NaN.xorsign.abs.f32", "w=ww", binary<Flushed<XorSignAbs<Nan>>, float, float>);
  table.add(name + ".f64", "x=xx", binary<Plain, double, double>);
}

enum class Property : uint32_t { finite, infinite, number, not_a_number, normal, subnormal };

template <class T>
void test_property(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  constexpr uint32_t mantissa_bits = sizeof(T) == 8 ? 52 : 23;
  constexpr Bits<T> max_exponent = sizeof(T) == 8 ? 0x7ff : 0xff;
  const auto property = static_cast<Property>(in.aux);
  write_predicate(warp, in.op[0], collect([=](uint32_t i) {
                    const auto bits = std::bit_cast<Bits<T>>(a[i]);
                    const Bits<T> exponent = bits >> mantissa_bits & max_exponent;
                    const Bits<T> fraction = bits & ((Bits<T>{1} << mantissa_bits) - 1);
                    switch (property) {
                      case Property::finite:
                        return exponent != max_exponent;
                      case Property::infinite:
                        return exponent == max_exponent && fraction == 0;
                      case Property::number:
                        return exponent != max_exponent || fraction == 0;
                      case Property::not_a_number:
                        return exponent == max_exponent && fraction != 0;
                      case Property::normal:
                        // Zero counts as normal (PTX ISA, testp).
                        return exponent != max_exponent && (exponent != 0 || fraction == 0);
                      default:
                        return exponent == 0 && fraction != 0;
                    }
                  }));
}

// Two f32 in one 64-bit register.
template <class Op, int sources>
void packed_single(Warp& warp, const Instruction& in) {
  const float* const a = reg<float>(warp, in.op[1]);
  const float* const b = reg<float>(warp, in.op[2]);
  const float* const c = reg<float>(warp, in.op[sources > 2 ? 3 : 2]);
  const uint32_t mode = in.aux & 7;
  const bool ftz = in.aux & ftz_flag;
  const RoundingScope scope(mode);
  write<uint64_t>(warp, in.op[0], [=](uint32_t i) {
    uint64_t result = 0;
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t k = 2 * i + half;
      float value;
      if constexpr (sources == 3) {
        value = ftz ? Flushed<Op>::apply(a[k], b[k], c[k]) : Op::apply(a[k], b[k], c[k]);
      } else {
        value = ftz ? Flushed<Op>::apply(a[k], b[k]) : Op::apply(a[k], b[k]);
      }
      result |= uint64_t{std::bit_cast<uint32_t>(value)} << (32 * half);
    }
    return result;
  });
}

template <class Op, int sources>
void register_packed(OpcodeTable& table, const std::string& name) {
  const char* const signature = sources == 3 ? "x=xxx" : "x=xx";
  static constexpr const char* mode_names[] = {".rn", ".rz", ".rm", ".rp"};
  for (uint32_t mode = 0; mode < 4; ++mode) {
    table.add(name + mode_names[mode] + ".f32x2", signature, packed_single<Op, sources>, mode);
    table.add(name + mode_names[mode] + ".ftz.f32x2", signature, packed_single<Op, sources>, mode | ftz_flag);
  }
  if (sources == 2) {
    table.add(name + ".f32x2", signature, packed_single<Op, sources>, 0);
    table.add(name + ".ftz.f32x2", signature, packed_single<Op, sources>, ftz_flag);
  }
}

}  // namespace

void register_float(OpcodeTable& table) {
  register_arithmetic<Add>(table, "add");
  register_arithmetic<Sub>(table, "sub");
  register_arithmetic<Mul>(table, "mul");
  register_packed<Add, 2>(table, "add");
  register_packed<Sub, 2>(table, "sub");
  register_packed<Mul, 2>(table, "mul");
  register_packed<Fma, 3>(table, "fma");
  for (const char* name : {"fma", "mad"}) {
    register_rounded<Fma, float, 3>(table, name, ".f32", true);
    register_rounded<Fma, double, 3>(table, name, ".f64", false);
    table.add(std::string(name) + ".rn.f32", "w=www", ternary<Fma, float, float>);
    table.add(std::string(name) + ".rn.ftz.f32", "w=www", ternary<Flushed<Fma>, float, float>);
    table.add(std::string(name) + ".rn.f64", "x=xxx", ternary<Fma, double, double>);
  }
  table.add("mad.f32", "w=www", ternary<Fma, float, float>);
  table.add("mad.ftz.f32", "w=www", ternary<Flushed<Fma>, float, float>);
  table.add("mad.sat.f32", "w=www", rounded<Fma, float, 3>, sat_flag);
  register_rounded<Div, float, 2>(table, "div", ".f32", false);
  register_rounded<Div, double, 2>(table, "div", ".f64", false);
  register_rounded<Sqrt, float, 1>(table, "sqrt", ".f32", false);
  register_rounded<Sqrt, double, 1>(table, "sqrt", ".f64", false);
  register_rounded<Reciprocal, float, 1>(table, "rcp", ".f32", false);
  register_rounded<Reciprocal, double, 1>(table, "rcp", ".f64", false);
  // The approximations may be as good as they like: these are correctly rounded.
  table.add("div.{approx,full}.f32", "w=ww", binary<Div, float, float>);
  table.add("div.{approx,full}.ftz.f32", "w=ww", binary<Flushed<Div>, float, float>);
  table.add("sqrt.approx.f32", "w=w", unary<Sqrt, float, float>);
  table.add("sqrt.approx.ftz.f32", "w=w", unary<Flushed<Sqrt>, float, float>);
  table.add("rcp.approx.f32", "w=w", unary<Reciprocal, float, float>);
  table.add("rcp.approx.ftz.f32", "w=w", unary<Flushed<Reciprocal>, float, float>);

  table.add("neg.f32", "w=w", unary<Negate, float, float>);
  table.add("neg.ftz.f32", "w=w", unary<Flushed<Negate>, float, float>);
  table.add("neg.f64", "x=x", unary<Negate, double, double>);
  table.add("abs.f32", "w=w", unary<Absolute, float, float>);
  table.add("abs.ftz.f32", "w=w", unary<Flushed<Absolute>, float, float>);
  table.add("abs.f64", "x=x", unary<Absolute, double, double>);
  register_extremum<false>(table, "min");
  register_extremum<true>(table, "max");
  table.add("copysign.f32", "w=ww", binary<CopySign, float, float>);
  table.add("copysign.f64", "x=xx", binary<CopySign, double, double>);
  static constexpr const char* property_names[] = {"finite",     "infinite", "number",
                                                   "notanumber", "normal",   "subnormal"};
  for (uint32_t k = 0; k < 6; ++k) {
    table.add(std::string("testp.") + property_names[k] + ".f32", "p=w", test_property<float>, k);
    table.add(std::string("testp.") + property_names[k] + ".f64", "p=x", test_property<double>, k);
  }
}

}  // namespace softgpu::SOFTGPU_ISA
