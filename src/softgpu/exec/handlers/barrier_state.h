// The 64 bits of an mbarrier object, which PTX leaves to us: bits 0..19 arrivals expected per phase, 20..39
// arrivals still missing in this phase, 40..60 bytes that asynchronous copies still owe it (two's complement:
// a copy may be done before it is expected), 61..63 number of the phase. A waiting lane names this phase or
// the one before it, so that three bits are plenty.
#pragma once

#include "softgpu/exec/handlers/address.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct BarrierState {
  uint64_t expected, pending;
  int64_t owed_bytes;
  uint64_t phase;
};
inline constexpr uint64_t arrival_mask = (1u << 20) - 1, owed_mask = (1u << 21) - 1;

SOFTGPU_INLINE BarrierState unpack_barrier(uint64_t bits) {
  const auto owed = static_cast<int64_t>(bits << 3) >> 43;
  return BarrierState{bits & arrival_mask, bits >> 20 & arrival_mask, owed, bits >> 61};
}
SOFTGPU_INLINE uint64_t pack_barrier(const BarrierState& s) {
  return (s.expected & arrival_mask) | (s.pending & arrival_mask) << 20 |
         (static_cast<uint64_t>(s.owed_bytes) & owed_mask) << 40 | s.phase << 61;
}
// A phase ends when nothing is missing and no bytes are owed.
SOFTGPU_INLINE void end_phase_if_complete(BarrierState& s) {
  if (s.pending != 0 || s.owed_bytes != 0) return;
  s.pending = s.expected;
  ++s.phase;
}
// The shared memory of a block is used by one thread of the host at a time: no atomic instructions needed.
SOFTGPU_INLINE void pay_bytes(uint64_t barrier_address, int64_t bytes) {
  BarrierState s = unpack_barrier(read_from<uint64_t>(barrier_address));
  s.owed_bytes -= bytes;
  end_phase_if_complete(s);
  write_to(barrier_address, pack_barrier(s));
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA
