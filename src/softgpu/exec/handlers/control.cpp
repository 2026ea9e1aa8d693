// Control flow, barriers of the block, fences, traps.
#include <algorithm>
#include <atomic>

#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

void branch_always(Warp& warp, const Instruction& in) {
  branch(warp, static_cast<uint32_t>(in.immediate), warp.mask);
}
// op[0]: the predicate (not a guard: the lanes that do not jump belong to the instruction); aux: negated.
void branch_if(Warp& warp, const Instruction& in) {
  const uint32_t p = predicate(warp, in.op[0]);
  branch(warp, static_cast<uint32_t>(in.immediate), warp.mask & (in.aux ? ~p : p));
}
// op[0]: index into the table in list.
void branch_indexed(Warp& warp, const Instruction& in) {
  const uint32_t* const index = reg<uint32_t>(warp, in.op[0]);
  const uint32_t lane = static_cast<uint32_t>(std::countr_zero(warp.mask));
  const uint32_t choice = index[lane];
  const uint32_t lanes = collect([&](uint32_t i) { return index[i] == choice; }) & warp.mask;
  if (choice >= in.list_size)
    raise_fault(warp, in, Fault::illegal_instruction, "brx.idx index out of range", choice, lane);
  if (lanes != warp.mask) {
    // Only these lanes go; the rest executes this instruction again.
    --warp.pc;
    branch(warp, in.list[choice], lanes);
    return;
  }
  branch(warp, in.list[choice], lanes);
}
void call(Warp& warp, const Instruction& in) {
  call_function(warp, in);
}
void ret(Warp& warp, const Instruction& in) {
  return_from_function(warp, in);
}
void exit_thread(Warp& warp, const Instruction&) {
  exit_lanes(warp);
}

void trap(Warp& warp, const Instruction& in) {
  raise_fault(warp, in, Fault::trap, "trap");
}
void breakpoint(Warp& warp, const Instruction& in) {
  raise_fault(warp, in, Fault::illegal_instruction, "breakpoint");
}
void nothing(Warp&, const Instruction&) {}
void fence(Warp&, const Instruction&) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
// op[0]: nanoseconds. Others have their turn; if they all sleep, so does the thread (Block::rests).
void sleep(Warp& warp, const Instruction& in) {
  const uint32_t* const wanted = reg<uint32_t>(warp, in.op[0]);
  uint32_t least = no_index;
  for (uint32_t i = 0; i < warp_lanes; ++i) {
    if (warp.mask >> i & 1) least = std::min(least, wanted[i]);
  }
  warp.sleeps_ns = least;
  warp.yield_requested = true;
  warp.meet_pc = 0;
}

// aux of barriers: bit 0 wait, bits 1..2 reduction + 1 (popc, and, or), bit 3 negate, bit 4 result is 32 bit,
// bit 5: has thread count, bit 6: has arrived before and only waits. Operands: [result,] barrier [, count] [,
// predicate]
void barrier(Warp& warp, const Instruction& in) {
  const uint32_t reduction = in.aux >> 1 & 3;
  uint32_t next = reduction != 0 ? 1 : 0;
  const auto lane = static_cast<uint32_t>(std::countr_zero(warp.mask));
  const uint32_t id = reg<uint32_t>(warp, in.op[next++])[lane];
  if (in.aux & 64) return wait_for_arrivals(warp, id);
  uint32_t expected = 0;
  if (in.aux & 32) expected = reg<uint32_t>(warp, in.op[next++])[lane];
  uint32_t p = 0;
  if (reduction != 0) {
    p = predicate(warp, in.op[next]);
    if (in.aux & 8) p = ~p;
  }
  block_on_barrier(warp, in, id, expected, in.aux & 1, reduction, reduction != 0 ? in.op[0] : no_index, p);
}

// isspacep: op[1] a generic address; aux: memory space.
enum SpaceTest : uint32_t { is_global, is_shared, is_local, is_const, is_param };
void is_in_space(Warp& warp, const Instruction& in) {
  const uint64_t* const a = reg<uint64_t>(warp, in.op[1]);
  const uint64_t shared = warp.shared_base, shared_bytes = warp.shared_bytes;
  const uint64_t local = warp.local_base, local_bytes = warp.local_stride * warp_lanes;
  const uint64_t param = warp.parameters, param_bytes = warp.parameter_bytes;
  const uint32_t test = in.aux;
  write_predicate(warp, in.op[0], collect([=, &warp](uint32_t i) {
                    const bool in_shared = a[i] - shared < shared_bytes;
                    const bool in_local = a[i] - local < local_bytes;
                    const bool in_param = a[i] - param < param_bytes;
                    switch (test) {
                      case is_shared:
                        return in_shared;
                      case is_local:
                        return in_local;
                      case is_param:
                        return in_param;
                      case is_const:
                        return address_is_constant(warp, a[i]);
                      default:
                        return !in_shared && !in_local && !in_param && !address_is_constant(warp, a[i]);
                    }
                  }));
}

// cvta: offset in shared or local memory <-> generic address. aux: 0 shared -> generic, 1 local -> generic,
// 2 generic -> shared, 3 generic -> local.
void convert_address(Warp& warp, const Instruction& in) {
  const uint64_t* const a = reg<uint64_t>(warp, in.op[1]);
  const uint64_t base = in.aux & 1 ? warp.local_base : warp.shared_base;
  const uint64_t stride = in.aux & 1 ? warp.local_stride : 0;
  if (in.aux & 2) {
    write<uint64_t>(warp, in.op[0], [=](uint32_t i) { return a[i] - base - i * stride; });
  } else {
    write<uint64_t>(warp, in.op[0], [=](uint32_t i) { return a[i] + base + i * stride; });
  }
}

}  // namespace

void register_control(OpcodeTable& table) {
  table.add("@bra", "", branch_always);
  table.add("@bra_if", "", branch_if);
  table.add("@brx", "", branch_indexed);
  table.add("@call", "", call);
  table.add("@ret", "", ret);
  table.add("@barrier", "", barrier);
  table.add("@nothing", "", nothing);
  table.add("exit", "=", exit_thread);
  table.add("trap", "=", trap);
  table.add("brkpt", "=", breakpoint);
  table.add("membar.{cta,gl,sys,proxy.alias}", "=", fence);
  table.add("fence{.sc,.acq_rel,.acquire,.release,}{.cta,.cluster,.gpu,.sys}", "=", fence);
  table.add("fence.proxy.{alias,async,async.global,async.shared::cta,async.shared::cluster}", "=", fence);
  table.add("fence.mbarrier_init.release.cluster", "=", fence);
  table.add("fence.proxy.alias.{acquire,release}.sys", "=", fence);
  table.add("fence.acquire.sync_restrict::shared::cluster.cluster", "=", fence);
  table.add("fence.release.sync_restrict::shared::cta.cluster", "=", fence);
  table.add("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", "=", fence);
  table.add("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "=", fence);
  table.add("nanosleep.u32", "=w", sleep);
  table.add("griddepcontrol.{launch_dependents,wait}", "=", nothing);
  table.add("setmaxnreg.{inc,dec}.sync.aligned.u32", "=#", nothing);
  table.add("pmevent{,.mask}", "=#", nothing);
  table.add("isspacep.global", "p=x", is_in_space, is_global);
  table.add("isspacep.{shared,shared::cta,shared::cluster}", "p=x", is_in_space, is_shared);
  table.add("isspacep.local", "p=x", is_in_space, is_local);
  table.add("isspacep.const", "p=x", is_in_space, is_const);
  table.add("isspacep.{param,param::entry}", "p=x", is_in_space, is_param);
  table.add("cvta{.global,.const,.param,.to.global,.to.const,.to.param}.u64", "x=x",
            table.find("mov.b64")->handler);
  table.add("cvta{.shared,.shared::cta,.shared::cluster}.u64", "x=x", convert_address, 0);
  table.add("cvta.local.u64", "x=x", convert_address, 1);
  table.add("cvta.to{.shared,.shared::cta,.shared::cluster}.u64", "x=x", convert_address, 2);
  table.add("cvta.to.local.u64", "x=x", convert_address, 3);
}

}  // namespace softgpu::SOFTGPU_ISA
