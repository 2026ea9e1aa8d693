// atom and red. Internal steps "@atom.<operation>.<type>": op[0] result, op[1] address, op[2] operand b,
// op[3] operand c (cas). Global memory is shared with other threads of this process, so that real atomic
// instructions are used; they order sequentially, which is stronger than any .sem asks.
#include "softgpu/exec/handlers/atomic_operations.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

template <class Op, class T>
void atomic(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, in.immediate, sizeof(T), a);
  const T* const b = reg<T>(warp, in.op[2]);
  alignas(64) T old[warp_lanes] = {};
  // Shared memory belongs to this block, and a block runs on one thread at a time.
  if (a.lowest >= warp.shared_base && a.highest - warp.shared_base < warp.shared_bytes) {
    each_active(warp, [&](uint32_t i) {
      T* const target = reinterpret_cast<T*>(a.at[i]);
      old[i] = *target;
      *target = Op::apply(old[i], b[i]);
    });
  } else if (std::is_same_v<Op, Add> && a.lowest == a.highest) {
    // All lanes at one address: one instruction for their sum; each lane sees those before it.
    T sum = 0;
    each_active(warp, [&](uint32_t i) {
      old[i] = sum;
      sum = static_cast<T>(sum + b[i]);
    });
    const T before = update<Add>(reinterpret_cast<T*>(a.lowest), sum);
    for (uint32_t i = 0; i < warp_lanes; ++i) old[i] = static_cast<T>(old[i] + before);
  } else {
    each_active(warp, [&](uint32_t i) { old[i] = update<Op>(reinterpret_cast<T*>(a.at[i]), b[i]); });
  }
  T* const d = reg<T>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) { d[i] = old[i]; });
}

template <class T>
void compare_and_swap(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, in.immediate, sizeof(T), a);
  const T* const b = reg<T>(warp, in.op[2]);
  const T* const c = reg<T>(warp, in.op[3]);
  T* const d = reg<T>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) {
    T expected = b[i];
    __atomic_compare_exchange_n(reinterpret_cast<T*>(a.at[i]), &expected, c[i], false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    d[i] = expected;
  });
}

// 128 bits: one lock for all, since not every processor has the instruction.
struct Quad {
  uint64_t low, high;
};
bool quad_lock = false;
// Faults unless the byte may be written: writes what is there.
void touch(uint64_t address) {
  auto* const byte = reinterpret_cast<uint8_t*>(address);
  uint8_t there = __atomic_load_n(byte, __ATOMIC_RELAXED);
  __atomic_compare_exchange_n(byte, &there, there, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
template <bool compares>
void atomic_quad(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, in.immediate, sizeof(Quad), a);
  const Quad* const b = reg<Quad>(warp, in.op[2]);
  const Quad* const c = reg<Quad>(warp, in.op[compares ? 3 : 2]);
  Quad* const d = reg<Quad>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) {
    touch(a.at[i]);  // a fault under the lock would leave it taken
    while (__atomic_test_and_set(&quad_lock, __ATOMIC_ACQUIRE)) {
    }
    const Quad old = read_from<Quad>(a.at[i]);
    if (!compares || (old.low == b[i].low && old.high == b[i].high)) write_to(a.at[i], c[i]);
    __atomic_clear(&quad_lock, __ATOMIC_RELEASE);
    d[i] = old;
  });
}

template <class U>
void register_width(OpcodeTable& table, const std::string& bits) {
  using S = std::make_signed_t<U>;
  table.add("@atom.add.{u,s,b}" + bits, "", atomic<Add, U>);
  table.add("@atom.and.{b,u,s}" + bits, "", atomic<And, U>);
  table.add("@atom.or.{b,u,s}" + bits, "", atomic<Or, U>);
  table.add("@atom.xor.{b,u,s}" + bits, "", atomic<Xor, U>);
  table.add("@atom.exch.{b,u,s,f}" + bits, "", atomic<Exchange, U>);
  table.add("@atom.min.u" + bits, "", atomic<Min, U>);
  table.add("@atom.min.s" + bits, "", atomic<Min, S>);
  table.add("@atom.max.u" + bits, "", atomic<Max, U>);
  table.add("@atom.max.s" + bits, "", atomic<Max, S>);
  table.add("@atom.cas.{b,u,s}" + bits, "", compare_and_swap<U>);
  table.add("@atom.add.f" + bits, "", atomic<AddFloat, U>);
}

}  // namespace

void register_atomic(OpcodeTable& table) {
  register_width<uint32_t>(table, "32");
  register_width<uint64_t>(table, "64");
  table.add("@atom.inc.u32", "", atomic<Increment, uint32_t>);
  table.add("@atom.dec.u32", "", atomic<Decrement, uint32_t>);
  table.add("@atom.cas.b16", "", compare_and_swap<uint16_t>);
  table.add("@atom.cas.b128", "", atomic_quad<true>);
  table.add("@atom.exch.b128", "", atomic_quad<false>);
  table.add("@atom.min.noftz.f16", "", atomic<ExtremeSmall<HalfFormat, false>, uint16_t>);
  table.add("@atom.max.noftz.f16", "", atomic<ExtremeSmall<HalfFormat, true>, uint16_t>);
  table.add("@atom.min.noftz.f16x2", "", atomic<ExtremeSmall<HalfFormat, false>, uint32_t>);
  table.add("@atom.max.noftz.f16x2", "", atomic<ExtremeSmall<HalfFormat, true>, uint32_t>);
  table.add("@atom.min.noftz.bf16", "", atomic<ExtremeSmall<BfloatFormat, false>, uint16_t>);
  table.add("@atom.max.noftz.bf16", "", atomic<ExtremeSmall<BfloatFormat, true>, uint16_t>);
  table.add("@atom.min.noftz.bf16x2", "", atomic<ExtremeSmall<BfloatFormat, false>, uint32_t>);
  table.add("@atom.max.noftz.bf16x2", "", atomic<ExtremeSmall<BfloatFormat, true>, uint32_t>);
  table.add("@atom.add.noftz.f16", "", atomic<AddSmall<HalfFormat>, uint16_t>);
  table.add("@atom.add.noftz.f16x2", "", atomic<AddSmall<HalfFormat>, uint32_t>);
  table.add("@atom.add.noftz.bf16", "", atomic<AddSmall<BfloatFormat>, uint16_t>);
  table.add("@atom.add.noftz.bf16x2", "", atomic<AddSmall<BfloatFormat>, uint32_t>);
}

}  // namespace softgpu::SOFTGPU_ISA
