// setp set selp slct.
#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// aux: bits 0..1 combine with predicate c: 0 none, 1 and, 2 or, 3 xor; bit 2: flush operands.
inline constexpr uint32_t flush_operands_flag = 4;

struct Eq {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a != b && a == a && b == b;
  }
};
struct Lt {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a >= b;
  }
};
struct Num {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a == a && b == b;
  }
};
// The unordered comparisons are true when an operand is NaN.
template <class Op>
struct Unordered {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a != a || b != b || Op::apply(a, b);
  }
};
struct Nan {
  template <class T>
  SOFTGPU_INLINE static bool apply(T a, T b) {
    return a != a || b != b;
  }
};

template <class T>
SOFTGPU_INLINE T element(const T* a, uint32_t i, bool ftz) {
  if constexpr (std::is_same_v<T, float>) return ftz ? flush(a[i]) : a[i];
  (void)ftz;
  return a[i];
}

template <class Op, class T>
SOFTGPU_INLINE uint32_t compare(const Warp& warp, uint32_t left, uint32_t right, bool ftz) {
  const T* const a = reg<T>(warp, left);
  const T* const b = reg<T>(warp, right);
  if constexpr (sizeof(T) >= 4) {
    // The select of a lane's bit vectorises; a shift by the lane number would not on every processor.
    using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    struct LaneBits {
      alignas(64) Word of[warp_lanes] = {};
      constexpr LaneBits() {
        for (uint32_t i = 0; i < warp_lanes; ++i) of[i] = Word{1} << i;
      }
    };
    static constexpr LaneBits lane_bits;
    Word result = 0;
    for (uint32_t i = 0; i < warp_lanes; ++i)
      result |= Op::apply(element(a, i, ftz), element(b, i, ftz)) ? lane_bits.of[i] : 0;
    return static_cast<uint32_t>(result);
  } else {
    return collect([&](uint32_t i) { return Op::apply(a[i], b[i]); });
  }
}

SOFTGPU_INLINE uint32_t combine(uint32_t how, uint32_t a, uint32_t c) {
  return how == 0 ? a : how == 1 ? a & c : how == 2 ? a | c : a ^ c;
}

template <class Op, class T>
void set_predicate(Warp& warp, const Instruction& in) {
  const uint32_t result = compare<Op, T>(warp, in.op[2], in.op[3], in.aux & flush_operands_flag);
  const uint32_t how = in.aux & 3;
  const uint32_t c = how == 0 ? 0 : predicate(warp, in.op[4]);
  write_predicate(warp, in.op[0], combine(how, result, c));
  write_predicate(warp, in.op[1], combine(how, ~result, c));
}

// set: all ones (integer destination) or 1.0f.
template <class Op, class T>
void set_value(Warp& warp, const Instruction& in) {
  const uint32_t compared = compare<Op, T>(warp, in.op[1], in.op[2], in.aux & flush_operands_flag);
  const uint32_t how = in.aux & 3;
  const uint32_t mask = combine(how, compared, how == 0 ? 0 : predicate(warp, in.op[3]));
  const uint32_t yes = in.aux & 8 ? 0x3f800000u : ~0u;
  write<uint32_t>(warp, in.op[0], [=](uint32_t i) { return mask >> i & 1 ? yes : 0u; });
}

template <class T>
void select(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const T* const b = reg<T>(warp, in.op[2]);
  const uint32_t p = predicate(warp, in.op[3]);
  write<T>(warp, in.op[0], [=](uint32_t i) { return p >> i & 1 ? a[i] : b[i]; });
}
void select_predicate(Warp& warp, const Instruction& in) {
  const uint32_t p = predicate(warp, in.op[3]);
  write_predicate(warp, in.op[0], (predicate(warp, in.op[1]) & p) | (predicate(warp, in.op[2]) & ~p));
}

template <class T, class C>
void select_by_sign(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const T* const b = reg<T>(warp, in.op[2]);
  const C* const c = reg<C>(warp, in.op[3]);
  const bool ftz = in.aux != 0;
  write<T>(warp, in.op[0], [=](uint32_t i) { return element(c, i, ftz) >= C(0) ? a[i] : b[i]; });
}

// What one comparison of one type is registered with.
struct Comparison {
  Handler set_predicate, set_value;
  const char *predicates, *combined_predicates, *value, *combined_value;
};

// Not a template: it would be compiled for each of the many pairs of operation and type.
void register_forms(OpcodeTable& table, const Comparison& comparison, std::string_view op,
                    std::string_view type, bool may_flush) {
  static constexpr const char* combination_names[] = {"", ".and", ".or", ".xor"};
  for (uint32_t how = 0; how < 4; ++how) {
    const char* const signature = how == 0 ? comparison.predicates : comparison.combined_predicates;
    const char* const value = how == 0 ? comparison.value : comparison.combined_value;
    for (uint32_t ftz = 0; ftz <= (may_flush ? 1u : 0u); ++ftz) {
      const char* const flushed = ftz ? ".ftz" : "";
      const uint32_t aux = how | (ftz ? flush_operands_flag : 0);
      table.add({"setp.", op, combination_names[how], flushed, ".", type}, signature,
                comparison.set_predicate, aux);
      table.add({"set.", op, combination_names[how], flushed, ".{u32,s32,b32}.", type}, value,
                comparison.set_value, aux);
      table.add({"set.", op, combination_names[how], flushed, ".f32.", type}, value, comparison.set_value,
                aux | 8);
    }
  }
}

template <class Op, class T>
void register_comparison(OpcodeTable& table, const char* op, const char* type, bool may_flush) {
  register_forms(table,
                 {set_predicate<Op, T>, set_value<Op, T>, letters<T>("p:p=hh", "p:p=ww", "p:p=xx"),
                  letters<T>("p:p=hhp", "p:p=wwp", "p:p=xxp"), letters<T>("w=hh", "w=ww", "w=xx"),
                  letters<T>("w=hhp", "w=wwp", "w=xxp")},
                 op, type, may_flush);
}

template <class T>
void register_integer_comparisons(OpcodeTable& table, const char* type) {
  register_comparison<Eq, T>(table, "eq", type, false);
  register_comparison<Ne, T>(table, "ne", type, false);
  register_comparison<Lt, T>(table, std::is_signed_v<T> ? "lt" : "{lt,lo}", type, false);
  register_comparison<Le, T>(table, std::is_signed_v<T> ? "le" : "{le,ls}", type, false);
  register_comparison<Gt, T>(table, std::is_signed_v<T> ? "gt" : "{gt,hi}", type, false);
  register_comparison<Ge, T>(table, std::is_signed_v<T> ? "ge" : "{ge,hs}", type, false);
}

template <class T>
void register_float_comparisons(OpcodeTable& table, const char* type, bool may_flush) {
  register_comparison<Eq, T>(table, "eq", type, may_flush);
  register_comparison<Ne, T>(table, "ne", type, may_flush);
  register_comparison<Lt, T>(table, "lt", type, may_flush);
  register_comparison<Le, T>(table, "le", type, may_flush);
  register_comparison<Gt, T>(table, "gt", type, may_flush);
  register_comparison<Ge, T>(table, "ge", type, may_flush);
  register_comparison<Unordered<Eq>, T>(table, "equ", type, may_flush);
  register_comparison<Unordered<Ne>, T>(table, "neu", type, may_flush);
  register_comparison<Unordered<Lt>, T>(table, "ltu", type, may_flush);
  register_comparison<Unordered<Le>, T>(table, "leu", type, may_flush);
  register_comparison<Unordered<Gt>, T>(table, "gtu", type, may_flush);
  register_comparison<Unordered<Ge>, T>(table, "geu", type, may_flush);
  register_comparison<Num, T>(table, "num", type, may_flush);
  register_comparison<Nan, T>(table, "nan", type, may_flush);
}

}  // namespace

void register_compare(OpcodeTable& table) {
  register_integer_comparisons<uint16_t>(table, "{u16,b16}");
  register_integer_comparisons<int16_t>(table, "s16");
  register_integer_comparisons<uint32_t>(table, "{u32,b32}");
  register_integer_comparisons<int32_t>(table, "s32");
  register_integer_comparisons<uint64_t>(table, "{u64,b64}");
  register_integer_comparisons<int64_t>(table, "s64");
  register_float_comparisons<float>(table, "f32", true);
  register_float_comparisons<double>(table, "f64", false);
  table.add("selp.{b16,u16,s16,f16,bf16}", "h=hhp", select<uint16_t>);
  table.add("selp.{b32,u32,s32,f32}", "w=wwp", select<uint32_t>);
  table.add("selp.{b64,u64,s64,f64}", "x=xxp", select<uint64_t>);
  table.add("selp.pred", "p=ppp", select_predicate);
  table.add("slct.{b16,u16,s16}.s32", "h=hhw", select_by_sign<uint16_t, int32_t>);
  table.add("slct.{b32,u32,s32,f32}.s32", "w=www", select_by_sign<uint32_t, int32_t>);
  table.add("slct.{b64,u64,s64,f64}.s32", "x=xxw", select_by_sign<uint64_t, int32_t>);
  for (uint32_t ftz = 0; ftz < 2; ++ftz) {
    const std::string slct = ftz ? "slct.ftz." : "slct.";
    table.add(slct + "{b16,u16,s16}.f32", "h=hhw", select_by_sign<uint16_t, float>, ftz);
    table.add(slct + "{b32,u32,s32,f32}.f32", "w=www", select_by_sign<uint32_t, float>, ftz);
    table.add(slct + "{b64,u64,s64,f64}.f32", "x=xxw", select_by_sign<uint64_t, float>, ftz);
  }
}

}  // namespace softgpu::SOFTGPU_ISA
