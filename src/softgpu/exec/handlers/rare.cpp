// What compilers write seldom: bytes packed in words, saturating packed sums, lop3 with a predicate, min and
// max of magnitudes, cvt.pack below 8 bits, redux of f32, addresses in a cluster of one block.
#include <cmath>

#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Add {
  static int64_t apply(int64_t a, int64_t b) { return a + b; }
};
struct Least {
  static int64_t apply(int64_t a, int64_t b) { return a < b ? a : b; }
};
struct Greatest {
  static int64_t apply(int64_t a, int64_t b) { return a > b ? a : b; }
};

enum class After { wrap, saturate, relu };
// One operation on each element E of a 32-bit register.
template <class Op, class E, After after>
struct Elements {
  static uint32_t apply(uint32_t a, uint32_t b) {
    constexpr uint32_t element_bits = 8 * sizeof(E),
                       ones = element_bits == 32 ? ~0u : (1u << (element_bits % 32)) - 1;
    uint32_t result = 0;
    for (uint32_t at = 0; at < 32; at += element_bits) {
      int64_t value = Op::apply(int64_t{static_cast<E>(a >> at)}, int64_t{static_cast<E>(b >> at)});
      if constexpr (after == After::saturate) {
        constexpr int64_t lowest = std::numeric_limits<E>::min(), highest = std::numeric_limits<E>::max();
        value = value < lowest ? lowest : value > highest ? highest : value;
      } else if constexpr (after == After::relu) {
        value = value < 0 ? 0 : value;
      }
      result |= (static_cast<uint32_t>(value) & ones) << at;
    }
    return result;
  }
};
template <class Op, class E, After after>
void add_elements(OpcodeTable& table, const std::string& name) {
  table.add(name, "w=ww", binary<Elements<Op, E, after>, uint32_t, uint32_t>);
}
struct NegateBytes {
  static uint32_t apply(uint32_t a) {
    uint32_t result = 0;
    for (uint32_t at = 0; at < 32; at += 8) result |= ((0u - (a >> at & 0xffu)) & 0xffu) << at;
    return result;
  }
};

// lop3.{or,and}.b32 d|p, a, b, c, table, q: p = (d != 0) with q
void lop3_predicate(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[2]);
  const uint32_t* const b = reg<uint32_t>(warp, in.op[3]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[4]);
  const uint32_t q = predicate(warp, in.op[5]);
  uint32_t result[warp_lanes];
  for (uint32_t i = 0; i < warp_lanes; ++i) {
    result[i] = 0;
    for (uint32_t k = 0; k < 8; ++k) {
      if (!(in.immediate >> k & 1)) continue;
      result[i] |= (k & 4 ? a[i] : ~a[i]) & (k & 2 ? b[i] : ~b[i]) & (k & 1 ? c[i] : ~c[i]);
    }
  }
  const uint32_t nonzero = collect([&](uint32_t i) { return result[i] != 0; });
  write<uint32_t>(warp, in.op[0], [&](uint32_t i) { return result[i]; });
  write_predicate(warp, in.op[1], in.aux == 0 ? nonzero | q : nonzero & q);
}

// min and max of magnitudes, and reductions over lanes. A NaN loses against a number unless `nan_wins`.
template <bool maximum>
SOFTGPU_INLINE float extremum(float a, float b, bool nan_wins) {
  const float canonical = std::bit_cast<float>(0x7fffffffu);
  if (a != a || b != b) {
    if (nan_wins || (a != a && b != b)) return canonical;
    return a != a ? b : a;
  }
  const auto x = std::bit_cast<uint32_t>(a), y = std::bit_cast<uint32_t>(b);
  if (a == b) return std::bit_cast<float>(maximum ? x & y : x | y);  // -0 is less than +0
  return (a < b) != maximum ? a : b;
}
constexpr uint32_t magnitude_flag = 256, nan_wins_flag = 512;
template <bool maximum>
void extremum_of_magnitudes(Warp& warp, const Instruction& in) {
  const float* const a = reg<float>(warp, in.op[1]);
  const float* const b = reg<float>(warp, in.op[2]);
  const bool ftz = in.aux & ftz_flag, nan_wins = in.aux & nan_wins_flag;
  float* const d = reg<float>(warp, in.op[0]);
  each_active(warp, [=](uint32_t i) {
    const float x = std::fabs(ftz ? flush(a[i]) : a[i]), y = std::fabs(ftz ? flush(b[i]) : b[i]);
    d[i] = extremum<maximum>(x, y, nan_wins);
  });
}

// redux.sync.{min,max}[.abs][.NaN].f32 d, a, mask
template <bool maximum>
void reduce_float(Warp& warp, const Instruction& in) {
  float a[warp_lanes];
  std::memcpy(a, reg<float>(warp, in.op[1]), sizeof(a));
  together(warp, in, in.op[2], [&](uint32_t, uint32_t lanes) {
    float result = std::numeric_limits<float>::quiet_NaN();
    bool first = true;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const float given = a[std::countr_zero(rest)];
      const float value = in.aux & magnitude_flag ? std::fabs(given) : given;
      result = first ? value : extremum<maximum>(result, value, in.aux & nan_wins_flag);
      first = false;
    }
    if (result != result) result = std::bit_cast<float>(0x7fffffffu);
    write<float>(warp, in.op[0], [=](uint32_t) { return result; });
  });
}

// cvt.pack.sat.{s4,u4,s2,u2}.s32.b32 d, a, b, c: two saturated values below c's. aux: bits, 16 if signed
void pack_small(Warp& warp, const Instruction& in) {
  const int32_t* const a = reg<int32_t>(warp, in.op[1]);
  const int32_t* const b = reg<int32_t>(warp, in.op[2]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[3]);
  const uint32_t bits = in.aux & 15;
  const bool is_signed = in.aux & 16;
  const int32_t low = is_signed ? -(1 << (bits - 1)) : 0,
                high = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  write<uint32_t>(warp, in.op[0], [=](uint32_t i) {
    auto clamp = [=](int32_t v) {
      return static_cast<uint32_t>(v < low ? low : v > high ? high : v) & ((1u << bits) - 1);
    };
    return c[i] << (2 * bits) | clamp(a[i]) << bits | clamp(b[i]);
  });
}

// mapa d, a, rank and getctarank d, a: the only block of a cluster has rank 0, and its addresses are its own.
template <class T>
void map_address(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  write<T>(warp, in.op[0], [=](uint32_t i) { return a[i]; });
}
void rank_of_address(Warp& warp, const Instruction& in) {
  write<uint32_t>(warp, in.op[0], [](uint32_t) { return 0u; });
}

template <bool maximum>
void register_extremum(OpcodeTable& table, const std::string& name) {
  using Op = std::conditional_t<maximum, Greatest, Least>;
  add_elements<Op, uint8_t, After::wrap>(table, name + ".u8x4");
  add_elements<Op, int8_t, After::wrap>(table, name + ".s8x4");
  add_elements<Op, int8_t, After::relu>(table, name + ".relu.s8x4");
  for (const uint32_t ftz : {uint32_t{0}, uint32_t{ftz_flag}}) {
    for (const uint32_t nan : {uint32_t{0}, uint32_t{nan_wins_flag}}) {
      table.add(name + (ftz ? ".ftz" : "") + (nan ? ".NaN" : "") + ".abs.f32", "w=ww",
                extremum_of_magnitudes<maximum>, ftz | nan);
    }
  }
  for (const uint32_t magnitude : {uint32_t{0}, uint32_t{magnitude_flag}}) {
    for (const uint32_t nan : {uint32_t{0}, uint32_t{nan_wins_flag}}) {
      table.add("redux.sync." + name + (magnitude ? ".abs" : "") + (nan ? ".NaN" : "") + ".f32", "w=ww",
                reduce_float<maximum>, magnitude | nan);
    }
  }
}

}  // namespace

void register_rare(OpcodeTable& table) {
  add_elements<Add, uint32_t, After::saturate>(table, "add.sat.u32");
  add_elements<Add, uint16_t, After::saturate>(table, "add.sat.u16x2");
  add_elements<Add, int16_t, After::saturate>(table, "add.sat.s16x2");
  add_elements<Add, uint8_t, After::wrap>(table, "add.{u8x4,s8x4}");
  add_elements<Add, uint8_t, After::saturate>(table, "add.sat.u8x4");
  add_elements<Add, int8_t, After::saturate>(table, "add.sat.s8x4");
  struct Subtract {
    static int64_t apply(int64_t a, int64_t b) { return a - b; }
  };
  add_elements<Subtract, uint8_t, After::wrap>(table, "sub.{u8x4,s8x4}");
  add_elements<Subtract, uint8_t, After::saturate>(table, "sub.sat.u8x4");
  add_elements<Subtract, int8_t, After::saturate>(table, "sub.sat.s8x4");
  table.add("neg.s8x4", "w=w", unary<NegateBytes, uint32_t, uint32_t>);
  register_extremum<false>(table, "min");
  register_extremum<true>(table, "max");
  table.add("lop3.or.b32", "w:p=www#p", lop3_predicate, 0);
  table.add("lop3.and.b32", "w:p=www#p", lop3_predicate, 1);
  for (const uint32_t bits : {4u, 2u}) {
    table.add("cvt.pack.sat.s" + std::to_string(bits) + ".s32.b32", "w=www", pack_small, bits | 16);
    table.add("cvt.pack.sat.u" + std::to_string(bits) + ".s32.b32", "w=www", pack_small, bits);
  }
  table.add("mapa{,.shared::cluster}.u32", "w=ww", map_address<uint32_t>);
  table.add("mapa{,.shared::cluster}.u64", "x=xw", map_address<uint64_t>);
  table.add("getctarank{,.shared::cluster}.u32", "w=w", rank_of_address);
  table.add("getctarank{,.shared::cluster}.u64", "w=x", rank_of_address);
}

}  // namespace softgpu::SOFTGPU_ISA
