// Extended precision: add.cc addc sub.cc subc mad.cc madc. The carry flag is one predicate per thread;
// it is register 'c' of the signatures. A subtraction's flag holds the borrow.
#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

template <class T, bool subtracts, bool with_carry, bool sets_carry>
void add_with_carry(Warp& warp, const Instruction& in) {
  const uint32_t sources = sets_carry ? 2 : 1;
  const T* const a = reg<T>(warp, in.op[sources]);
  const T* const b = reg<T>(warp, in.op[sources + 1]);
  const uint32_t carry_in = with_carry ? predicate(warp, in.op[sources + 2]) : 0;
  T* const d = reg<T>(warp, in.op[0]);
  uint32_t carry_out = 0;
  each_active(warp, [&](uint32_t i) {
    const T c = static_cast<T>(carry_in >> i & 1);
    T partial, result;
    bool carry;
    if constexpr (subtracts) {
      carry = __builtin_sub_overflow(a[i], b[i], &partial);
      carry |= __builtin_sub_overflow(partial, c, &result);
    } else {
      carry = __builtin_add_overflow(a[i], b[i], &partial);
      carry |= __builtin_add_overflow(partial, c, &result);
    }
    d[i] = result;
    carry_out |= static_cast<uint32_t>(carry) << i;
  });
  if constexpr (sets_carry) write_predicate(warp, in.op[1], carry_out);
}

// T is the operand type: its sign matters for the high half of the product.
template <class T, bool high_half, bool with_carry, bool sets_carry>
void multiply_with_carry(Warp& warp, const Instruction& in) {
  using U = std::make_unsigned_t<T>;
  const uint32_t sources = sets_carry ? 2 : 1;
  const T* const a = reg<T>(warp, in.op[sources]);
  const T* const b = reg<T>(warp, in.op[sources + 1]);
  const U* const c = reg<U>(warp, in.op[sources + 2]);
  const uint32_t carry_in = with_carry ? predicate(warp, in.op[sources + 3]) : 0;
  U* const d = reg<U>(warp, in.op[0]);
  uint32_t carry_out = 0;
  each_active(warp, [&](uint32_t i) {
    const Wider<T> product = Wider<T>(a[i]) * Wider<T>(b[i]);
    const U half = static_cast<U>(high_half ? product >> (8 * sizeof(T)) : product);
    U partial, result;
    bool carry = __builtin_add_overflow(half, c[i], &partial);
    carry |= __builtin_add_overflow(partial, static_cast<U>(carry_in >> i & 1), &result);
    d[i] = result;
    carry_out |= static_cast<uint32_t>(carry) << i;
  });
  if constexpr (sets_carry) write_predicate(warp, in.op[1], carry_out);
}

template <class U>
void register_sums(OpcodeTable& table, const std::string& types) {
  const bool wide = sizeof(U) == 8;
  const char* const sets = wide ? "xc=xx" : "wc=ww";
  const char* const reads = wide ? "x=xxc" : "w=wwc";
  const char* const both = wide ? "xc=xxc" : "wc=wwc";
  table.add("add.cc." + types, sets, add_with_carry<U, false, false, true>);
  table.add("addc." + types, reads, add_with_carry<U, false, true, false>);
  table.add("addc.cc." + types, both, add_with_carry<U, false, true, true>);
  table.add("sub.cc." + types, sets, add_with_carry<U, true, false, true>);
  table.add("subc." + types, reads, add_with_carry<U, true, true, false>);
  table.add("subc.cc." + types, both, add_with_carry<U, true, true, true>);
}

template <class T, bool high_half>
void register_products(OpcodeTable& table, const std::string& type) {
  const bool wide = sizeof(T) == 8;
  const std::string tail = (high_half ? ".hi" : ".lo") + std::string(".cc.") + type;
  table.add("mad" + tail, wide ? "xc=xxx" : "wc=www", multiply_with_carry<T, high_half, false, true>);
  table.add("madc" + tail, wide ? "xc=xxxc" : "wc=wwwc", multiply_with_carry<T, high_half, true, true>);
  table.add("madc" + std::string(high_half ? ".hi." : ".lo.") + type, wide ? "x=xxxc" : "w=wwwc",
            multiply_with_carry<T, high_half, true, false>);
}

template <class T>
void register_both(OpcodeTable& table, const std::string& type) {
  register_products<T, false>(table, type);
  register_products<T, true>(table, type);
}

}  // namespace

void register_carry(OpcodeTable& table) {
  register_sums<uint32_t>(table, "{u32,s32,b32}");
  register_sums<uint64_t>(table, "{u64,s64,b64}");
  register_both<uint32_t>(table, "u32");
  register_both<int32_t>(table, "s32");
  register_both<uint64_t>(table, "u64");
  register_both<int64_t>(table, "s64");
}

}  // namespace softgpu::SOFTGPU_ISA
