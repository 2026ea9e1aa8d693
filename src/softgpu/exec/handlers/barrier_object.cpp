// mbarrier: an object in shared memory that counts arrivals, and bytes of asynchronous copies, by phase.
// Steps
// "@mbarrier.*"; op[0] (or op[1] where there is a result) is the address.
#include "softgpu/exec/handlers/barrier_state.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

void initialise(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, 0, 8, a);
  const uint32_t* const count = reg<uint32_t>(warp, in.op[1]);
  each_active(warp, [&](uint32_t i) {
    const uint64_t n = count[i] & arrival_mask;
    write_to(a.at[i], pack_barrier(BarrierState{n, n, 0, 0}));
  });
}
void invalidate(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, 0, 8, a);
  each_active(warp, [&](uint32_t i) { write_to(a.at[i], uint64_t{0}); });
}

// op[3]: bytes that the phase is to wait for, before the arrival counts.
template <bool drops>
void arrive(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, 0, 8, a);
  const uint32_t* const count = reg<uint32_t>(warp, in.op[2]);
  const uint32_t* const bytes = reg<uint32_t>(warp, in.op[3]);
  uint64_t* const d = reg<uint64_t>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) {
    const auto before = read_from<uint64_t>(a.at[i]);
    BarrierState s = unpack_barrier(before);
    s.owed_bytes += bytes[i];
    if (drops && s.expected >= count[i]) s.expected -= count[i];
    s.pending = s.pending > count[i] ? s.pending - count[i] : 0;
    end_phase_if_complete(s);
    write_to(a.at[i], pack_barrier(s));
    d[i] = before;
  });
}
// aux bit 4: the bytes have come (complete_tx), else they are to come (expect_tx).
void change_bytes(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux & 15, 0, 8, a);
  const uint32_t* const bytes = reg<uint32_t>(warp, in.op[1]);
  const bool pays = in.aux & 16;
  each_active(warp, [&](uint32_t i) {
    if (pays) return pay_bytes(a.at[i], bytes[i]);
    BarrierState s = unpack_barrier(read_from<uint64_t>(a.at[i]));
    s.owed_bytes += bytes[i];
    write_to(a.at[i], pack_barrier(s));
  });
}

template <bool by_parity>
void test(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, 0, 8, a);
  uint32_t done = 0;
  each_active(warp, [&](uint32_t i) {
    const BarrierState now = unpack_barrier(read_from<uint64_t>(a.at[i]));
    const bool passed = by_parity ? (now.phase & 1) != (reg<uint32_t>(warp, in.op[2])[i] & 1)
                                  : now.phase != unpack_barrier(reg<uint64_t>(warp, in.op[2])[i]).phase;
    done |= static_cast<uint32_t>(passed) << i;
  });
  write_predicate(warp, in.op[0], done);
  // The waiting lanes will ask again: let the other warps come to their arrivals first.
  if ((done & warp.mask) != warp.mask) {
    warp.yield_requested = true;
    warp.meet_pc = 0;
  }
}
void pending_count(Warp& warp, const Instruction& in) {
  const uint64_t* const a = reg<uint64_t>(warp, in.op[1]);
  write<uint32_t>(warp, in.op[0],
                  [=](uint32_t i) { return static_cast<uint32_t>(unpack_barrier(a[i]).pending); });
}

}  // namespace

void register_barrier_object(OpcodeTable& table) {
  table.add("@mbarrier.init", "", initialise);
  table.add("@mbarrier.inval", "", invalidate);
  table.add("@mbarrier.arrive", "", arrive<false>);
  table.add("@mbarrier.arrive_drop", "", arrive<true>);
  table.add("@mbarrier.change_bytes", "", change_bytes);
  table.add("@mbarrier.test", "", test<false>);
  table.add("@mbarrier.test_parity", "", test<true>);
  table.add("@mbarrier.pending_count", "", pending_count);
}

}  // namespace softgpu::SOFTGPU_ISA
