// Logic, shifts and bit fields: and or xor not cnot shl shr shf lop3 prmt popc clz brev bfind bfe bfi fns
// bmsk szext.
#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <class T>
  static T apply(T a) {
    return a == 0;
  }
};

// Shift amounts above the width count as the width.
struct ShiftLeft {
  template <class T>
  static T apply(T a, uint32_t n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(Work<T>(a) << (n & (8 * sizeof(Work<T>) - 1)));
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, uint32_t n) {
    constexpr uint32_t type_bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> (n < type_bits ? n : type_bits - 1));
    } else {
      return n >= type_bits ? T{0} : static_cast<T>(a >> (n & (type_bits - 1)));
    }
  }
};
template <bool to_left, bool wraps>
struct Funnel {
  static uint32_t apply(uint32_t low, uint32_t high, uint32_t c) {
    const uint32_t n = wraps ? c & 31 : c < 32 ? c : 32;
    const uint64_t both = uint64_t{high} << 32 | low;
    return to_left ? static_cast<uint32_t>((both << n) >> 32) : static_cast<uint32_t>(both >> n);
  }
};

struct PopulationCount {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  static uint32_t apply(uint32_t v) {
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(v);
  }
  static uint64_t apply(uint64_t v) {
    return uint64_t{apply(static_cast<uint32_t>(v))} << 32 | apply(static_cast<uint32_t>(v >> 32));
  }
};
template <bool shift_amount>
struct FindLeadingBit {
  template <class T>
  static uint32_t apply(T value) {
    using U = std::make_unsigned_t<T>;
    U bits = static_cast<U>(value);
    if constexpr (std::is_signed_v<T>) {
      if (value < 0) bits = static_cast<U>(~bits);
    }
    if (bits == 0) return ~0u;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return shift_amount ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
  }
};
struct Extract {
  template <class T>
  static T apply(T a, uint32_t b, uint32_t c) {
    constexpr uint32_t top_bit = 8 * sizeof(T) - 1;
    using U = std::make_unsigned_t<T>;
    const uint32_t position = b & 0xff, length = c & 0xff;
    if (length == 0) return 0;
    const uint32_t last = position + length - 1 < top_bit ? position + length - 1 : top_bit;
    const U sign = std::is_signed_v<T> ? static_cast<U>(static_cast<U>(a) >> last & 1) : U{0};
    U result = position > top_bit ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
    const uint32_t kept = position > top_bit ? 0 : last - position + 1;
    const U field = kept > top_bit ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << kept) - 1);
    result &= field;
    return static_cast<T>(sign ? static_cast<U>(result | static_cast<U>(~field)) : result);
  }
};
template <class T>
void insert(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const T* const b = reg<T>(warp, in.op[2]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[3]);
  const uint32_t* const d = reg<uint32_t>(warp, in.op[4]);
  write<T>(warp, in.op[0], [=](uint32_t i) -> T {
    constexpr uint32_t type_bits = 8 * sizeof(T);
    const uint32_t position = c[i] & 0xff, length = d[i] & 0xff;
    if (length == 0 || position >= type_bits) return b[i];
    const T ones = length >= type_bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T field = static_cast<T>(ones << position);
    return static_cast<T>((b[i] & ~field) | (static_cast<T>(a[i] << position) & field));
  });
}

void lop3(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  const uint32_t* const b = reg<uint32_t>(warp, in.op[2]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[3]);
  uint32_t minterm[8];
  for (int k = 0; k < 8; ++k) minterm[k] = in.immediate >> k & 1 ? ~0u : 0u;
  write<uint32_t>(warp, in.op[0], [&](uint32_t i) {
    const uint32_t x = a[i], y = b[i], z = c[i];
    return (minterm[0] & ~x & ~y & ~z) | (minterm[1] & ~x & ~y & z) | (minterm[2] & ~x & y & ~z) |
           (minterm[3] & ~x & y & z) | (minterm[4] & x & ~y & ~z) | (minterm[5] & x & ~y & z) |
           (minterm[6] & x & y & ~z) | (minterm[7] & x & y & z);
  });
}

enum class Permute : uint8_t { general, f4e, b4e, rc8, ecl, ecr, rc16 };
template <Permute permute_mode>
struct Prmt {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    if constexpr (permute_mode != Permute::general) {
      static constexpr uint16_t selectors[6][4] = {
          {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
          {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
          {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
      selector = selectors[static_cast<int>(permute_mode) - 1][selector & 3];
    }
    uint32_t result = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t choice = selector >> (4 * k) & 0xf;
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (choice & 7))) & 0xff;
      if (choice & 8) byte = byte & 0x80 ? 0xff : 0;  // replicate the sign
      result |= byte << (8 * k);
    }
    return result;
  }
};

// The n-th set bit at or above (n > 0) or at or below (n < 0) the base; n == 0: the base itself if set.
struct FindNthSet {
  static uint32_t apply(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    const int step = offset > 0 ? 1 : -1;
    int64_t left = offset > 0 ? offset : -int64_t{offset};
    for (int position = static_cast<int>(base); position >= 0 && position < 32; position += step) {
      if ((mask >> position & 1) && --left == 0) return static_cast<uint32_t>(position);
    }
    return ~0u;
  }
};
template <bool wraps>
struct BitMask {
  static uint32_t apply(uint32_t a, uint32_t b) {
    const uint32_t start = wraps ? a & 31 : a, width = wraps ? b & 31 : b;
    if (start >= 32 || width == 0) return 0;
    const uint64_t ones = width >= 32 ? 0xffffffffull : (uint64_t{1} << width) - 1;
    return static_cast<uint32_t>(ones << start);
  }
};
template <bool wraps>
struct Extend {
  template <class T>
  static T apply(T a, uint32_t n) {
    const uint32_t width = wraps ? n & 31 : n;
    if (width == 0) return 0;
    if (width >= 32) return a;
    return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << (32 - width)) >> (32 - width));
  }
};

void predicate_logic(Warp& warp, const Instruction& in) {
  const uint32_t a = predicate(warp, in.op[1]), b = predicate(warp, in.op[2]);
  write_predicate(warp, in.op[0], in.aux == 0 ? a & b : in.aux == 1 ? a | b : a ^ b);
}
void predicate_not(Warp& warp, const Instruction& in) {
  write_predicate(warp, in.op[0], ~predicate(warp, in.op[1]));
}

template <class U>
void register_width(OpcodeTable& table, const std::string& bits) {
  using S = std::make_signed_t<U>;
  const char* const two = letters<U>("h=hh", "w=ww", "x=xx");
  const char* const one = letters<U>("h=h", "w=w", "x=x");
  const char* const shift = letters<U>("h=hw", "w=ww", "x=xw");
  table.add("and.b" + bits, two, binary<And, U, U>);
  table.add("or.b" + bits, two, binary<Or, U, U>);
  table.add("xor.b" + bits, two, binary<Xor, U, U>);
  table.add("not.b" + bits, one, unary<Not, U, U>);
  table.add("cnot.b" + bits, one, unary<LogicalNot, U, U>);
  table.add("shl.b" + bits, shift, binary<ShiftLeft, U, U, uint32_t>);
  table.add("shr.{b,u}" + bits, shift, binary<ShiftRight, U, U, uint32_t>);
  table.add("shr.s" + bits, shift, binary<ShiftRight, S, S, uint32_t>);
  if constexpr (sizeof(U) >= 4) {
    const char* const to_word = sizeof(U) == 4 ? "w=w" : "w=x";
    table.add("popc.b" + bits, to_word, unary<PopulationCount, uint32_t, U>);
    table.add("clz.b" + bits, to_word, unary<LeadingZeros, uint32_t, U>);
    table.add("brev.b" + bits, one, unary<Reverse, U, U>);
    table.add("bfind.u" + bits, to_word, unary<FindLeadingBit<false>, uint32_t, U>);
    table.add("bfind.s" + bits, to_word, unary<FindLeadingBit<false>, uint32_t, S>);
    table.add("bfind.shiftamt.u" + bits, to_word, unary<FindLeadingBit<true>, uint32_t, U>);
    table.add("bfind.shiftamt.s" + bits, to_word, unary<FindLeadingBit<true>, uint32_t, S>);
    const char* const extract = sizeof(U) == 4 ? "w=www" : "x=xww";
    table.add("bfe.u" + bits, extract, ternary<Extract, U, U, uint32_t, uint32_t>);
    table.add("bfe.s" + bits, extract, ternary<Extract, S, S, uint32_t, uint32_t>);
    table.add("bfi.b" + bits, sizeof(U) == 4 ? "w=wwww" : "x=xxww", insert<U>);
  }
}

}  // namespace

void register_bits(OpcodeTable& table) {
  register_width<uint16_t>(table, "16");
  register_width<uint32_t>(table, "32");
  register_width<uint64_t>(table, "64");
  table.add("and.pred", "p=pp", predicate_logic, 0);
  table.add("or.pred", "p=pp", predicate_logic, 1);
  table.add("xor.pred", "p=pp", predicate_logic, 2);
  table.add("not.pred", "p=p", predicate_not);
  table.add("shf.l.clamp.b32", "w=www", ternary<Funnel<true, false>, uint32_t, uint32_t>);
  table.add("shf.l.wrap.b32", "w=www", ternary<Funnel<true, true>, uint32_t, uint32_t>);
  table.add("shf.r.clamp.b32", "w=www", ternary<Funnel<false, false>, uint32_t, uint32_t>);
  table.add("shf.r.wrap.b32", "w=www", ternary<Funnel<false, true>, uint32_t, uint32_t>);
  table.add("lop3.b32", "w=www#", lop3);
  table.add("prmt.b32", "w=www", ternary<Prmt<Permute::general>, uint32_t, uint32_t>);
  table.add("prmt.b32.f4e", "w=www", ternary<Prmt<Permute::f4e>, uint32_t, uint32_t>);
  table.add("prmt.b32.b4e", "w=www", ternary<Prmt<Permute::b4e>, uint32_t, uint32_t>);
  table.add("prmt.b32.rc8", "w=www", ternary<Prmt<Permute::rc8>, uint32_t, uint32_t>);
  table.add("prmt.b32.ecl", "w=www", ternary<Prmt<Permute::ecl>, uint32_t, uint32_t>);
  table.add("prmt.b32.ecr", "w=www", ternary<Prmt<Permute::ecr>, uint32_t, uint32_t>);
  table.add("prmt.b32.rc16", "w=www", ternary<Prmt<Permute::rc16>, uint32_t, uint32_t>);
  table.add("fns.b32", "w=www", ternary<FindNthSet, uint32_t, uint32_t, uint32_t, int32_t>);
  table.add("bmsk.clamp.b32", "w=ww", binary<BitMask<false>, uint32_t, uint32_t>);
  table.add("bmsk.wrap.b32", "w=ww", binary<BitMask<true>, uint32_t, uint32_t>);
  table.add("szext.clamp.u32", "w=ww", binary<Extend<false>, uint32_t, uint32_t, uint32_t>);
  table.add("szext.clamp.s32", "w=ww", binary<Extend<false>, int32_t, int32_t, uint32_t>);
  table.add("szext.wrap.u32", "w=ww", binary<Extend<true>, uint32_t, uint32_t, uint32_t>);
  table.add("szext.wrap.s32", "w=ww", binary<Extend<true>, int32_t, int32_t, uint32_t>);
}

}  // namespace softgpu::SOFTGPU_ISA
