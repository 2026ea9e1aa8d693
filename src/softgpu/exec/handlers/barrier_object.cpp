// mbarrier: a 64-bit object in shared memory that counts arrivals by phase. Steps "@mbarrier.*"; op[0] (or
// op[1] where there is a result) is the address. Layout, ours: bits 0..19 expected arrivals per phase, bits
// 20..39 arrivals still missing in this phase, bits 40..63 number of the phase.
#include "softgpu/exec/handlers/address.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

constexpr uint64_t kCountMask = (1u << 20) - 1;

struct State {
  uint64_t expected, pending, phase;
};
SOFTGPU_INLINE State unpack_state(uint64_t bits) {
  return State{bits & kCountMask, bits >> 20 & kCountMask, bits >> 40};
}
SOFTGPU_INLINE uint64_t pack_state(const State& s) {
  return (s.expected & kCountMask) | (s.pending & kCountMask) << 20 | s.phase << 40;
}

void initialise(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, 0, 8, a);
  const uint32_t* const count = reg<uint32_t>(warp, in.op[1]);
  each_active(warp, [&](uint32_t i) {
    const uint64_t n = count[i] & kCountMask;
    write_to(a.at[i], pack_state(State{n, n, 0}));
  });
}
void invalidate(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, 0, 8, a);
  each_active(warp, [&](uint32_t i) { write_to(a.at[i], uint64_t{0}); });
}
// The shared memory of a block is used by one thread of the host at a time: no atomic instructions needed.
template <bool kDrop>
void arrive(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, 0, 8, a);
  const uint32_t* const count = reg<uint32_t>(warp, in.op[2]);
  uint64_t* const d = reg<uint64_t>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) {
    const auto before = read_from<uint64_t>(a.at[i]);
    State s = unpack_state(before);
    if (kDrop && s.expected >= count[i]) s.expected -= count[i];
    s.pending = s.pending > count[i] ? s.pending - count[i] : 0;
    if (s.pending == 0) {
      s.pending = s.expected;
      ++s.phase;
    }
    write_to(a.at[i], pack_state(s));
    d[i] = before;
  });
}
template <bool kParity>
void test(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, 0, 8, a);
  uint32_t done = 0;
  each_active(warp, [&](uint32_t i) {
    const State now = unpack_state(read_from<uint64_t>(a.at[i]));
    const bool passed = kParity ? (now.phase & 1) != (reg<uint32_t>(warp, in.op[2])[i] & 1)
                                : now.phase != unpack_state(reg<uint64_t>(warp, in.op[2])[i]).phase;
    done |= static_cast<uint32_t>(passed) << i;
  });
  write_predicate(warp, in.op[0], done);
  // Who waits will ask again: let the other warps come to their arrivals first.
  if ((done & warp.mask) != warp.mask) {
    warp.yield_requested = true;
    warp.meet_pc = 0;
  }
}
void pending_count(Warp& warp, const Instruction& in) {
  const uint64_t* const a = reg<uint64_t>(warp, in.op[1]);
  write<uint32_t>(warp, in.op[0],
                  [=](uint32_t i) { return static_cast<uint32_t>(unpack_state(a[i]).pending); });
}

}  // namespace

void register_barrier_object(OpcodeTable& table) {
  table.add("@mbarrier.init", "", initialise);
  table.add("@mbarrier.inval", "", invalidate);
  table.add("@mbarrier.arrive", "", arrive<false>);
  table.add("@mbarrier.arrive_drop", "", arrive<true>);
  table.add("@mbarrier.test", "", test<false>);
  table.add("@mbarrier.test_parity", "", test<true>);
  table.add("@mbarrier.pending_count", "", pending_count);
}

}  // namespace softgpu::SOFTGPU_ISA
