// f16, f16x2, bf16, bf16x2: add sub mul fma neg abs min max ex2 tanh setp set.
// Sums and products are formed in f32 and rounded once more to 16 bits, which for these widths gives the same
// result as rounding once. fma is formed in f64, rounded to odd: bf16's range is too wide for a plain sum.
#include <cmath>

#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Add {
  SOFTGPU_INLINE static float apply(float a, float b) { return a + b; }
};
struct Sub {
  SOFTGPU_INLINE static float apply(float a, float b) { return a - b; }
};
struct Mul {
  SOFTGPU_INLINE static float apply(float a, float b) { return a * b; }
};
struct Fma {
  SOFTGPU_INLINE static double apply(double a, double b, double c) {
    const double product = a * b;  // exact: 22 bits at most
    const double sum = product + c;
    // What the sum has lost (Knuth's two-sum). If anything, the sum's last bit must say so.
    const double of_c = sum - product, lost = (product - (sum - of_c)) + (c - of_c);
    const auto bits = std::bit_cast<uint64_t>(sum);
    if (!(lost != 0) || !std::isfinite(sum) || (bits & 1)) return sum;
    return std::bit_cast<double>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
  }
};
struct Exp2 {
  SOFTGPU_INLINE static float apply(float a) { return std::exp2(a); }
};
struct Tangent {
  SOFTGPU_INLINE static float apply(float a) { return std::tanh(a); }
};

template <class F>
inline constexpr uint16_t smallest_normal_half = std::is_same_v<F, HalfFormat> ? 0x0400 : 0x0080;

template <class F>
SOFTGPU_INLINE uint16_t flush_small(uint16_t v) {
  return (v & 0x7fff) < smallest_normal_half<F> ? static_cast<uint16_t>(v & 0x8000) : v;
}
SOFTGPU_INLINE bool is_nan_half(uint16_t v, bool bfloat) {
  return (v & 0x7fff) > (bfloat ? 0x7f80 : 0x7c00);
}

template <class F>
SOFTGPU_INLINE uint16_t finish(uint16_t v, uint32_t flags) {
  constexpr bool is_bfloat = std::is_same_v<F, BfloatFormat>;
  if (flags & ftz_flag) v = flush_small<F>(v);
  if (flags & sat_flag) {
    const uint16_t one = is_bfloat ? 0x3f80 : 0x3c00;
    if ((v & 0x8000) || is_nan_half(v, is_bfloat)) return 0;
    return v > one ? one : v;
  }
  if ((flags & relu_flag) && (v & 0x8000) && !is_nan_half(v, is_bfloat)) return 0;
  return v;
}
template <class F>
SOFTGPU_INLINE float fetch(uint16_t v, uint32_t flags) {
  return F::load(flags & ftz_flag ? flush_small<F>(v) : v);
}

// f works on 16 bits; packed registers apply it to both halves.
template <bool packed, int sources, class Function>
SOFTGPU_INLINE void apply_halves(Warp& warp, const Instruction& in, Function f) {
  using Word = std::conditional_t<packed, uint32_t, uint16_t>;
  const Word* const a = reg<Word>(warp, in.op[1]);
  const Word* const b = reg<Word>(warp, in.op[sources > 1 ? 2 : 1]);
  const Word* const c = reg<Word>(warp, in.op[sources > 2 ? 3 : 1]);
  write<Word>(warp, in.op[0], [=](uint32_t i) {
    const uint16_t low =
        f(static_cast<uint16_t>(a[i]), static_cast<uint16_t>(b[i]), static_cast<uint16_t>(c[i]));
    if constexpr (!packed) {
      return low;
    } else {
      const uint16_t high = f(static_cast<uint16_t>(a[i] >> 16), static_cast<uint16_t>(b[i] >> 16),
                              static_cast<uint16_t>(c[i] >> 16));
      return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
    }
  });
}

template <class Op, class F, int sources, bool packed>
void arithmetic(Warp& warp, const Instruction& in) {
  const uint32_t flags = in.aux;
  apply_halves<packed, sources>(warp, in, [=](uint16_t a, uint16_t b, uint16_t c) -> uint16_t {
    if constexpr (sources == 1) {
      (void)b, (void)c;
      return finish<F>(F::store(Op::apply(fetch<F>(a, flags))), flags);
    } else if constexpr (sources == 2) {
      (void)c;
      return finish<F>(F::store(Op::apply(fetch<F>(a, flags), fetch<F>(b, flags))), flags);
    } else {
      return finish<F>(F::store(Op::apply(double{fetch<F>(a, flags)}, double{fetch<F>(b, flags)},
                                          double{fetch<F>(c, flags)})),
                       flags);
    }
  });
}

template <class F, bool packed, bool negate>
void change_sign(Warp& warp, const Instruction& in) {
  const uint32_t flags = in.aux;
  apply_halves<packed, 1>(warp, in, [=](uint16_t a, uint16_t, uint16_t) {
    const auto v = flags & ftz_flag ? flush_small<F>(a) : a;
    return static_cast<uint16_t>(negate ? v ^ 0x8000 : v & 0x7fff);
  });
}

inline constexpr uint32_t propagate_nan_flag = 64, xor_sign_flag = 128;

template <class F, bool packed, bool maximum>
void extremum(Warp& warp, const Instruction& in) {
  constexpr bool is_bfloat = std::is_same_v<F, BfloatFormat>;
  const uint32_t flags = in.aux;
  apply_halves<packed, 2>(warp, in, [=](uint16_t a, uint16_t b, uint16_t) -> uint16_t {
    if (flags & ftz_flag) {
      a = flush_small<F>(a);
      b = flush_small<F>(b);
    }
    const auto sign = static_cast<uint16_t>((a ^ b) & 0x8000);
    if (flags & xor_sign_flag) {
      a &= 0x7fff;
      b &= 0x7fff;
    }
    const bool nan_a = is_nan_half(a, is_bfloat), nan_b = is_nan_half(b, is_bfloat);
    uint16_t result;
    if ((nan_a && nan_b) || ((nan_a || nan_b) && (flags & propagate_nan_flag))) {
      return 0x7fff;
    } else if (nan_a) {
      result = b;
    } else if (nan_b) {
      result = a;
    } else {
      // Sign and magnitude as an ordered integer: -0 below +0.
      auto key = [](uint16_t v) { return v & 0x8000 ? -1 - (v & 0x7fff) : static_cast<int>(v); };
      result = (key(a) < key(b)) != maximum ? a : b;
    }
    return flags & xor_sign_flag ? static_cast<uint16_t>((result & 0x7fff) | sign) : result;
  });
}

bool compare_as(uint32_t comparison, float a, float b) {
  const bool nan = a != a || b != b;
  switch (comparison) {
    case 0:
      return a == b;
    case 1:
      return !nan && a != b;
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a >= b;
    case 6:
      return nan || a == b;
    case 7:
      return nan || a != b;
    case 8:
      return nan || a < b;
    case 9:
      return nan || a <= b;
    case 10:
      return nan || a > b;
    case 11:
      return nan || a >= b;
    case 12:
      return !nan;
    default:
      return nan;
  }
}
constexpr const char* comparison_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                            "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
SOFTGPU_INLINE uint32_t combine(uint32_t how, uint32_t a, uint32_t c) {
  return how == 0 ? a : how == 1 ? a & c : how == 2 ? a | c : a ^ c;
}
// aux: bits 0..1 how to combine, bit 3 ftz, bits 8.. comparison
template <class F, bool packed>
SOFTGPU_INLINE void compare_halves(const Warp& warp, const Instruction& in, uint32_t first, uint32_t& low,
                                   uint32_t& high) {
  using Word = std::conditional_t<packed, uint32_t, uint16_t>;
  const Word* const a = reg<Word>(warp, in.op[first]);
  const Word* const b = reg<Word>(warp, in.op[first + 1]);
  low = collect([=](uint32_t i) {
    return compare_as(in.aux >> 8, fetch<F>(static_cast<uint16_t>(a[i]), in.aux),
                      fetch<F>(static_cast<uint16_t>(b[i]), in.aux));
  });
  high = ~low;
  if constexpr (packed) {
    high = collect([=](uint32_t i) {
      return compare_as(in.aux >> 8, fetch<F>(static_cast<uint16_t>(a[i] >> 16), in.aux),
                        fetch<F>(static_cast<uint16_t>(b[i] >> 16), in.aux));
    });
  }
}
template <class F, bool packed>
void set_predicate(Warp& warp, const Instruction& in) {
  uint32_t low, high;
  compare_halves<F, packed>(warp, in, 2, low, high);
  const uint32_t how = in.aux & 3, c = how == 0 ? 0 : predicate(warp, in.op[4]);
  write_predicate(warp, in.op[0], combine(how, low, c));
  write_predicate(warp, in.op[1], combine(how, high, c));
}
// D: what true is written as. Packed: both halves.
template <class F, bool packed, class D>
void set_value(Warp& warp, const Instruction& in) {
  uint32_t low, high;
  compare_halves<F, packed>(warp, in, 1, low, high);
  const uint32_t how = in.aux & 3, c = how == 0 ? 0 : predicate(warp, in.op[3]);
  low = combine(how, low, c);
  high = combine(how, high, c);
  const bool number = in.aux & 4;  // 1.0 instead of all ones
  const uint16_t one = !number ? 0xffff : std::is_same_v<F, HalfFormat> ? 0x3c00 : 0x3f80;
  write<D>(warp, in.op[0], [=](uint32_t i) {
    if constexpr (packed) {
      return static_cast<D>((low >> i & 1 ? one : 0u) | (high >> i & 1 ? uint32_t{one} << 16 : 0u));
    } else if constexpr (sizeof(D) == 4) {
      return low >> i & 1 ? ~D{0} : D{0};
    } else {
      return static_cast<D>(low >> i & 1 ? one : 0);
    }
  });
}

template <class F, bool packed>
void register_format(OpcodeTable& table, const std::string& type) {
  constexpr bool is_half = std::is_same_v<F, HalfFormat>;
  const char* const one = packed ? "w=w" : "h=h";
  const char* const two = packed ? "w=ww" : "h=hh";
  const char* const three = packed ? "w=www" : "h=hhh";
  // .ftz and .sat exist for f16 only.
  for (uint32_t flags : {0u, ftz_flag, sat_flag, ftz_flag | sat_flag}) {
    if (!is_half && flags != 0) continue;
    const std::string tail =
        std::string(flags & ftz_flag ? ".ftz" : "") + (flags & sat_flag ? ".sat" : "") + type;
    table.add("add{.rn,}" + tail, two, arithmetic<Add, F, 2, packed>, flags);
    table.add("sub{.rn,}" + tail, two, arithmetic<Sub, F, 2, packed>, flags);
    table.add("mul{.rn,}" + tail, two, arithmetic<Mul, F, 2, packed>, flags);
    table.add("fma.rn" + tail, three, arithmetic<Fma, F, 3, packed>, flags);
  }
  for (uint32_t flags : {0u, ftz_flag}) {
    if (!is_half && flags != 0) continue;
    const std::string ftz = flags & ftz_flag ? ".ftz" : "";
    table.add("fma.rn" + ftz + ".relu" + type, three, arithmetic<Fma, F, 3, packed>, flags | relu_flag);
    table.add("neg" + ftz + type, one, change_sign<F, packed, true>, flags);
    table.add("abs" + ftz + type, one, change_sign<F, packed, false>, flags);
    for (uint32_t nan : {0u, propagate_nan_flag}) {
      for (uint32_t sign : {0u, xor_sign_flag}) {
        const std::string tail = ftz + (nan ? ".NaN" : "") + (sign ? ".xorsign.abs" : "") + type;
        table.add("min" + tail, two, extremum<F, packed, false>, flags | nan | sign);
        table.add("max" + tail, two, extremum<F, packed, true>, flags | nan | sign);
      }
    }
    static constexpr const char* combination_names[] = {"", ".and", ".or", ".xor"};
    for (uint32_t comparison = 0; comparison < 14; ++comparison) {
      for (uint32_t how = 0; how < 4; ++how) {
        const std::string head =
            std::string(".") + comparison_names[comparison] + combination_names[how] + ftz;
        const uint32_t aux = comparison << 8 | how | flags;
        const bool c = how != 0;
        table.add("setp" + head + type, packed ? (c ? "p:p=wwp" : "p:p=ww") : (c ? "p:p=hhp" : "p:p=hh"),
                  set_predicate<F, packed>, aux);
        if constexpr (packed) {
          table.add("set" + head + type + type, c ? "w=wwp" : "w=ww", set_value<F, true, uint32_t>, aux | 4);
          table.add("set" + head + ".{u32,s32}" + type, c ? "w=wwp" : "w=ww", set_value<F, true, uint32_t>,
                    aux);
        } else {
          table.add("set" + head + type + type, c ? "h=hhp" : "h=hh", set_value<F, false, uint16_t>, aux | 4);
          table.add("set" + head + ".{u16,s16}" + type, c ? "h=hhp" : "h=hh", set_value<F, false, uint16_t>,
                    aux);
          table.add("set" + head + ".{u32,s32}" + type, c ? "w=hhp" : "w=hh", set_value<F, false, uint32_t>,
                    aux);
        }
      }
    }
  }
  table.add(std::string(is_half ? "ex2.approx{.ftz,}" : "ex2.approx.ftz") + type, one,
            arithmetic<Exp2, F, 1, packed>, is_half ? 0 : ftz_flag);
  table.add("tanh.approx" + type, one, arithmetic<Tangent, F, 1, packed>);
}

}  // namespace

void register_half(OpcodeTable& table) {
  register_format<HalfFormat, false>(table, ".f16");
  register_format<HalfFormat, true>(table, ".f16x2");
  register_format<BfloatFormat, false>(table, ".bf16");
  register_format<BfloatFormat, true>(table, ".bf16x2");
}

}  // namespace softgpu::SOFTGPU_ISA
