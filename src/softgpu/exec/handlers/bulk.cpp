// Bulk copies and reductions (cp.async.bulk, cp.reduce.async.bulk, st.bulk), which run at once. Each active
// lane starts one of its own. Steps "@bulk.copy" and "@bulk.reduce.<operation>.<type>": op[0] destination,
// op[1] source, op[2] bytes, op[3] mbarrier to which the bytes are paid, op[4] which bytes of each 16 are
// copied. aux: how to address the three, four bits each, then the flags.
#include "softgpu/exec/handlers/atomic_operations.h"
#include "softgpu/exec/handlers/barrier_state.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

constexpr uint32_t has_barrier_flag = 1 << 12, has_mask_flag = 1 << 13;

// The host address of [register] for one lane, checked for `bytes` from there on, a multiple of `alignment`.
uint64_t lane_address(Warp& warp, const Instruction& in, uint32_t operand, uint32_t how, uint64_t bytes,
                      uint64_t alignment, uint32_t lane) {
  uint64_t address = how & memory_operand::address32 ? reg<uint32_t>(warp, operand)[lane]
                                                     : reg<uint64_t>(warp, operand)[lane];
  if (address % alignment != 0) {
    raise_fault(warp, in, Fault::misaligned_address, "misaligned address of a bulk copy", address, lane);
  }
  if ((how & memory_operand::space_mask) == memory_operand::shared) {
    if (address >= warp.shared_bytes || warp.shared_bytes - address < bytes) {
      raise_fault(warp, in, Fault::illegal_address, "address outside the block's shared memory", address,
                  lane);
    }
    return address + warp.shared_base;
  }
  if (!address_is_valid(warp, address, bytes)) {
    raise_fault(warp, in, Fault::illegal_address, "illegal address", address, lane);
  }
  return address;
}

// Calls use(lane, destination, source, bytes) for every active lane, then pays the bytes.
template <class F>
void each_transfer(Warp& warp, const Instruction& in, F use) {
  const uint32_t* const sizes = reg<uint32_t>(warp, in.op[2]);
  each_active(warp, [&](uint32_t i) {
    const uint32_t bytes = sizes[i];
    if (bytes % 16 != 0) {
      raise_fault(warp, in, Fault::misaligned_address, "size of a bulk copy is no multiple of 16:", bytes, i);
    }
    const uint64_t to = lane_address(warp, in, in.op[0], in.aux & 15, bytes, 16, i);
    const uint64_t from = lane_address(warp, in, in.op[1], in.aux >> 4 & 15, bytes, 16, i);
    use(i, to, from, bytes);
    if (in.aux & has_barrier_flag)
      pay_bytes(lane_address(warp, in, in.op[3], in.aux >> 8 & 15, 8, 8, i), bytes);
  });
}

void bulk_copy(Warp& warp, const Instruction& in) {
  each_transfer(warp, in, [&](uint32_t lane, uint64_t to, uint64_t from, uint32_t bytes) {
    if (!(in.aux & has_mask_flag)) {
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return;
    }
    const uint32_t mask = reg<uint16_t>(warp, in.op[4])[lane];
    for (uint32_t k = 0; k < bytes; ++k) {
      if (mask >> (k % 16) & 1) write_to(to + k, read_from<uint8_t>(from + k));
    }
  });
}

template <class Op, class T>
void bulk_reduce(Warp& warp, const Instruction& in) {
  each_transfer(warp, in, [&](uint32_t, uint64_t to, uint64_t from, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += sizeof(T))
      update<Op>(reinterpret_cast<T*>(to + k), read_from<T>(from + k));
  });
}

// st.bulk [a], size, 0: op[0] address, op[1] 64-bit size, aux: how to address
void bulk_zero(Warp& warp, const Instruction& in) {
  const uint64_t* const sizes = reg<uint64_t>(warp, in.op[1]);
  each_active(warp, [&](uint32_t i) {
    const uint64_t bytes = sizes[i];
    if (bytes % 8 != 0)
      raise_fault(warp, in, Fault::misaligned_address, "size of st.bulk is no multiple of 8:", bytes, i);
    const uint64_t to = lane_address(warp, in, in.op[0], in.aux & 15, bytes, 8, i);
    std::memset(reinterpret_cast<void*>(to), 0, bytes);
  });
}

template <class U>
void register_width(OpcodeTable& table, const std::string& bits) {
  using S = std::make_signed_t<U>;
  table.add("@bulk.reduce.add.{u,s}" + bits, "", bulk_reduce<Add, U>);
  table.add("@bulk.reduce.and.b" + bits, "", bulk_reduce<And, U>);
  table.add("@bulk.reduce.or.b" + bits, "", bulk_reduce<Or, U>);
  table.add("@bulk.reduce.xor.b" + bits, "", bulk_reduce<Xor, U>);
  table.add("@bulk.reduce.min.u" + bits, "", bulk_reduce<Min, U>);
  table.add("@bulk.reduce.min.s" + bits, "", bulk_reduce<Min, S>);
  table.add("@bulk.reduce.max.u" + bits, "", bulk_reduce<Max, U>);
  table.add("@bulk.reduce.max.s" + bits, "", bulk_reduce<Max, S>);
  table.add("@bulk.reduce.add.f" + bits, "", bulk_reduce<AddFloat, U>);
}
template <class F>
void register_small(OpcodeTable& table, const std::string& type) {
  table.add("@bulk.reduce.add.noftz" + type, "", bulk_reduce<AddSmall<F>, uint16_t>);
  table.add("@bulk.reduce.min" + type, "", bulk_reduce<ExtremeSmall<F, false>, uint16_t>);
  table.add("@bulk.reduce.max" + type, "", bulk_reduce<ExtremeSmall<F, true>, uint16_t>);
}

}  // namespace

void register_bulk(OpcodeTable& table) {
  table.add("@bulk.copy", "", bulk_copy);
  table.add("@bulk.zero", "", bulk_zero);
  register_width<uint32_t>(table, "32");
  register_width<uint64_t>(table, "64");
  table.add("@bulk.reduce.inc.u32", "", bulk_reduce<Increment, uint32_t>);
  table.add("@bulk.reduce.dec.u32", "", bulk_reduce<Decrement, uint32_t>);
  register_small<HalfFormat>(table, ".f16");
  register_small<BfloatFormat>(table, ".bf16");
}

}  // namespace softgpu::SOFTGPU_ISA
