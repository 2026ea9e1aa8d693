// Integer arithmetic: add sub mul mad div rem sad abs neg min max mul24 mad24 dp4a dp2a.
#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Work<T>(a) + Work<T>(b));
  }
};
struct Sub {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Work<T>(a) - Work<T>(b));
  }
};
struct MulLow {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Work<T>(a) * Work<T>(b));
  }
};
struct MulHigh {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>((Wider<T>(a) * Wider<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T>
  static Wider<T> apply(T a, T b) {
    return static_cast<Wider<T>>(Wider<T>(a) * Wider<T>(b));
  }
};
struct MadLow {
  template <class T>
  static T apply(T a, T b, T c) {
    return static_cast<T>(Work<T>(a) * Work<T>(b) + Work<T>(c));
  }
};
struct MadHigh {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(MulHigh::apply(a, b), c);
  }
};
struct MadWide {
  template <class T>
  static Wider<T> apply(T a, T b, Wider<T> c) {
    return Add::apply(MulWide::apply(a, b), c);
  }
};
inline int32_t saturate(int64_t value) {
  return static_cast<int32_t>(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}
struct AddSaturating {
  static int32_t apply(int32_t a, int32_t b) { return saturate(int64_t{a} + b); }
};
struct SubSaturating {
  static int32_t apply(int32_t a, int32_t b) { return saturate(int64_t{a} - b); }
};
struct MadHighSaturating {
  static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return saturate(int64_t{MulHigh::apply(a, b)} + c);
  }
};
// Division by zero gives all ones, the remainder the dividend: what the hardware's routine returns.
struct Div {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(Work<T>(0) - Work<T>(a));
    }
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct Sad {
  template <class T>
  static T apply(T a, T b, T c) {
    const Work<T> difference = a < b ? Work<T>(b) - Work<T>(a) : Work<T>(a) - Work<T>(b);
    return static_cast<T>(difference + Work<T>(c));
  }
};
struct Abs {
  template <class T>
  static T apply(T a) {
    return a < 0 ? static_cast<T>(Work<T>(0) - Work<T>(a)) : a;
  }
};
struct Neg {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(Work<T>(0) - Work<T>(a));
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
template <class Op>
struct Relu {
  template <class T>
  static T apply(T a, T b) {
    return Max::apply(Op::apply(a, b), T{0});
  }
};

// Two 16-bit operations in one 32-bit register.
template <class Op, class H>
struct Packed {
  static uint32_t apply(uint32_t a, uint32_t b) {
    const auto low = static_cast<uint16_t>(Op::apply(static_cast<H>(a), static_cast<H>(b)));
    const auto high = static_cast<uint16_t>(Op::apply(static_cast<H>(a >> 16), static_cast<H>(b >> 16)));
    return uint32_t{low} | uint32_t{high} << 16;
  }
};

// 24-bit operands in 32-bit registers; .lo takes bits 0..31 of the 48-bit product, .hi bits 16..47.
template <class T>
struct Product24 {
  static auto of(T a, T b) {
    if constexpr (std::is_signed_v<T>) {
      return int64_t{static_cast<T>(uint32_t(a) << 8) >> 8} * int64_t{static_cast<T>(uint32_t(b) << 8) >> 8};
    } else {
      return uint64_t{a & 0xffffffu} * uint64_t{b & 0xffffffu};
    }
  }
};
struct Mul24Low {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Product24<T>::of(a, b));
  }
};
struct Mul24High {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(Product24<T>::of(a, b) >> 16);
  }
};
template <class Op>
struct Mad24 {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(Op::apply(a, b), c);
  }
};
struct Mad24HighSaturating {
  static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return saturate(int64_t{Mul24High::apply(a, b)} + c);
  }
};

template <class A, class B>
struct Dot4 {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += int32_t{static_cast<A>(a >> (8 * i))} * int32_t{static_cast<B>(b >> (8 * i))};
    return c + static_cast<uint32_t>(sum);
  }
};
template <class A, class B, int b_shift>
struct Dot2 {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    using A16 = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
    uint32_t sum = c;
    for (int i = 0; i < 2; ++i) {
      sum += static_cast<uint32_t>(int32_t{static_cast<A16>(a >> (16 * i))}) *
             static_cast<uint32_t>(int32_t{static_cast<B>(b >> (8 * i + b_shift))});
    }
    return sum;
  }
};

template <class T>
void register_type(OpcodeTable& table, const char* type) {
  const std::string t = std::string(".") + type;
  const char* const two = letters<T>("h=hh", "w=ww", "x=xx");
  const char* const three = letters<T>("h=hhh", "w=www", "x=xxx");
  table.add("add" + t, two, binary<Add, T, T>);
  table.add("sub" + t, two, binary<Sub, T, T>);
  table.add("mul.lo" + t, two, binary<MulLow, T, T>);
  table.add("mul.hi" + t, two, binary<MulHigh, T, T>);
  table.add("mad.lo" + t, three, ternary<MadLow, T, T>);
  table.add("mad.hi" + t, three, ternary<MadHigh, T, T>);
  table.add("div" + t, two, binary<Div, T, T>);
  table.add("rem" + t, two, binary<Rem, T, T>);
  table.add("sad" + t, three, ternary<Sad, T, T>);
  table.add("min" + t, two, binary<Min, T, T>);
  table.add("max" + t, two, binary<Max, T, T>);
  if constexpr (std::is_signed_v<T>) {
    const char* const one = letters<T>("h=h", "w=w", "x=x");
    table.add("abs" + t, one, unary<Abs, T, T>);
    table.add("neg" + t, one, unary<Neg, T, T>);
  }
  if constexpr (sizeof(T) < 8) {
    table.add("mul.wide" + t, sizeof(T) == 2 ? "w=hh" : "x=ww", binary<MulWide, Wider<T>, T>);
    table.add("mad.wide" + t, sizeof(T) == 2 ? "w=hhw" : "x=wwx", ternary<MadWide, Wider<T>, T, T, Wider<T>>);
  }
}

template <class A, class B>
void register_dots(OpcodeTable& table, const std::string& types) {
  table.add("dp4a." + types, "w=www", ternary<Dot4<A, B>, uint32_t, uint32_t>);
  table.add("dp2a.lo." + types, "w=www", ternary<Dot2<A, B, 0>, uint32_t, uint32_t>);
  table.add("dp2a.hi." + types, "w=www", ternary<Dot2<A, B, 16>, uint32_t, uint32_t>);
}

}  // namespace

void register_integer(OpcodeTable& table) {
  register_type<uint16_t>(table, "u16");
  register_type<int16_t>(table, "s16");
  register_type<uint32_t>(table, "u32");
  register_type<int32_t>(table, "s32");
  register_type<uint64_t>(table, "u64");
  register_type<int64_t>(table, "s64");
  table.add("add.sat.s32", "w=ww", binary<AddSaturating, int32_t, int32_t>);
  table.add("sub.sat.s32", "w=ww", binary<SubSaturating, int32_t, int32_t>);
  table.add("mad.hi.sat.s32", "w=www", ternary<MadHighSaturating, int32_t, int32_t>);
  table.add("min.relu.s32", "w=ww", binary<Relu<Min>, int32_t, int32_t>);
  table.add("max.relu.s32", "w=ww", binary<Relu<Max>, int32_t, int32_t>);
  table.add("add.{u16x2,s16x2}", "w=ww", binary<Packed<Add, uint16_t>, uint32_t, uint32_t>);
  table.add("min.u16x2", "w=ww", binary<Packed<Min, uint16_t>, uint32_t, uint32_t>);
  table.add("max.u16x2", "w=ww", binary<Packed<Max, uint16_t>, uint32_t, uint32_t>);
  table.add("min.s16x2", "w=ww", binary<Packed<Min, int16_t>, uint32_t, uint32_t>);
  table.add("max.s16x2", "w=ww", binary<Packed<Max, int16_t>, uint32_t, uint32_t>);
  table.add("min.relu.s16x2", "w=ww", binary<Packed<Relu<Min>, int16_t>, uint32_t, uint32_t>);
  table.add("max.relu.s16x2", "w=ww", binary<Packed<Relu<Max>, int16_t>, uint32_t, uint32_t>);
  table.add("mul24.lo.u32", "w=ww", binary<Mul24Low, uint32_t, uint32_t>);
  table.add("mul24.lo.s32", "w=ww", binary<Mul24Low, int32_t, int32_t>);
  table.add("mul24.hi.u32", "w=ww", binary<Mul24High, uint32_t, uint32_t>);
  table.add("mul24.hi.s32", "w=ww", binary<Mul24High, int32_t, int32_t>);
  table.add("mad24.lo.u32", "w=www", ternary<Mad24<Mul24Low>, uint32_t, uint32_t>);
  table.add("mad24.lo.s32", "w=www", ternary<Mad24<Mul24Low>, int32_t, int32_t>);
  table.add("mad24.hi.u32", "w=www", ternary<Mad24<Mul24High>, uint32_t, uint32_t>);
  table.add("mad24.hi.s32", "w=www", ternary<Mad24<Mul24High>, int32_t, int32_t>);
  table.add("mad24.hi.sat.s32", "w=www", ternary<Mad24HighSaturating, int32_t, int32_t>);
  register_dots<uint8_t, uint8_t>(table, "u32.u32");
  register_dots<uint8_t, int8_t>(table, "u32.s32");
  register_dots<int8_t, uint8_t>(table, "s32.u32");
  register_dots<int8_t, int8_t>(table, "s32.s32");
}

}  // namespace softgpu::SOFTGPU_ISA
