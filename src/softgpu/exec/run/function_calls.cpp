// Calls and returns: the lanes that enter a function leave the others, and come back to where they called.
#include <bit>
#include <cstring>
#include <utility>

#include "softgpu/exec/program/builtin.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

constexpr uint32_t max_call_depth = 4096;

}  // namespace

void call_function(Warp& warp, const Instruction& in) {
  Block& block = *warp.block;
  const CallSite& site = warp.frame->function->call_sites[static_cast<size_t>(in.immediate)];
  if (site.builtin != 0) return builtins()[site.builtin - 1].run(warp, in, site);
  uint32_t function = site.function, lanes = warp.mask;
  if (function == indirect_call) {
    const auto* const targets = reinterpret_cast<const uint64_t*>(warp.registers + in.op[0]);
    const auto first = static_cast<uint32_t>(std::countr_zero(warp.mask));
    const uint64_t target = targets[first];
    const uint64_t number = target - function_address_tag;
    // A kernel cannot know the address of a function that it does not reach.
    if (number >= block.launch.program->functions.size() || !block.launch.kernel->reached[number] ||
        block.launch.program->functions[number].is_entry) {
      raise_fault(warp, in, Fault::illegal_instruction, "call through a pointer to no function", target,
                  first);
    }
    function = static_cast<uint32_t>(number);
    if (site.callee_bytes > block.launch.program->functions[function].local_bytes) {
      raise_fault(warp, in, Fault::illegal_instruction,
                  "call through a pointer to a function with another signature", target, first);
    }
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      if (targets[i] != target) lanes &= ~(uint32_t{1} << i);
    }
  }
  Frame* const caller = warp.frame;
  const Function& callee = block.launch.program->functions[function];
  const uint32_t local_offset =
      (caller->local_offset + caller->function->local_bytes + callee.local_alignment - 1) /
      callee.local_alignment * callee.local_alignment;
  if (local_offset + callee.local_bytes > warp.local_stride || caller->depth >= max_call_depth) {
    raise_fault(warp, in, Fault::stack_overflow, "call stack overflow", 0,
                static_cast<uint32_t>(std::countr_zero(warp.mask)));
  }
  // Lanes with another target, then lanes that the guard excludes.
  const uint32_t others = warp.mask & ~lanes, excluded = warp.group_mask & ~warp.mask;
  for (const auto& [mask, pc] : {std::pair{others, warp.pc - 1}, std::pair{excluded, warp.pc}}) {
    if (mask == 0) continue;
    Group group;
    group.mask = mask;
    group.pc = pc;
    group.frame = caller;
    group.last_run = warp.clock;
    push_group(warp, group);
  }
  Frame* const frame = block.new_frame(warp, callee);
  frame->parent = caller;
  frame->site = &site;
  frame->return_pc = warp.pc;
  frame->depth = caller->depth + 1;
  frame->lanes = lanes;
  frame->local_offset = local_offset;
  for (const CallArgument& argument : site.arguments) {
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      if (!(lanes >> i & 1)) continue;
      auto* const memory = reinterpret_cast<std::byte*>(warp.local_base + i * warp.local_stride);
      std::memcpy(memory + local_offset + argument.callee_offset,
                  memory + caller->local_offset + argument.caller_offset, argument.bytes);
    }
  }
  Group entered;
  entered.mask = lanes;
  entered.frame = frame;
  resume(warp, entered);
  warp.meet_pc =
      --warp.branch_budget < 0 ? 0 : no_index;  // functions that call each other repeat themselves too
}

void return_from_function(Warp& warp, const Instruction&) {
  Frame* const frame = warp.frame;
  if (frame->parent == nullptr) return exit_lanes(warp);
  const uint32_t lanes = warp.mask;
  for (const CallArgument& result : frame->site->results) {
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      if (!(lanes >> i & 1)) continue;
      auto* const memory = reinterpret_cast<std::byte*>(warp.local_base + i * warp.local_stride);
      std::memcpy(memory + frame->parent->local_offset + result.caller_offset,
                  memory + frame->local_offset + result.callee_offset, result.bytes);
    }
  }
  frame->lanes &= ~lanes;
  Group back;
  back.mask = lanes;
  back.pc = frame->return_pc;
  back.frame = frame->parent;
  back.last_run = warp.clock;
  warp.group_mask &= ~lanes;
  if (frame->lanes == 0) warp.block->release_frame(warp, frame);
  if (warp.group_mask == 0 && warp.groups.empty()) {
    resume(warp, back);
    warp.meet_pc = no_index;
    return;
  }
  push_group(warp, back);
  if (warp.group_mask != 0) set_mask(warp, warp.group_mask);
  warp.meet_pc = 0;
}

}  // namespace softgpu
