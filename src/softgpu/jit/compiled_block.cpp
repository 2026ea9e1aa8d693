// Running a block of a compiled kernel. Two ways:
//
// The fast one: all warps are in compiled code from the kernel's beginning or from a barrier that each
// reached as a whole. Nothing of the interpreter's state is kept up meanwhile, and the barrier opens by
// itself.
//
// The general one: as soon as a warp stops elsewhere, every warp's lanes are groups of the interpreter's
// scheduler again. A group at a place where compiled code can be entered continues there, otherwise the
// interpreter takes it on to such a place.
#include "softgpu/jit/compiled_block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "softgpu/exec/block.h"

namespace softgpu::jit {
namespace {

constexpr uint32_t kStart = 0;
constexpr uint32_t kEnded = ~0u;

}  // namespace

struct CompiledBody::State : CompiledBlockState {
  bool fast = true;
  bool constants_current = false;    // of the block, in the frames
  std::vector<uint32_t> fast_entry;  // by warp: entry at which it goes on
  std::vector<Frame*> frames;        // by warp
  std::vector<uint32_t> masks;
  RunContext context;
};

// What compiled code calls where it has none of its own.
void CompiledBody::call_handler(Warp& warp, const Instruction& in, uint32_t mask) {
  const auto& state = static_cast<const State&>(*warp.block->compiled_state);
  warp.pc = static_cast<uint32_t>(&in - state.context.calls) + 1;
  warp.group_mask = mask;
  set_mask(warp, mask);
  in.handler(warp, in);
}

CompiledBody::CompiledBody(std::shared_ptr<const Program> program, std::unique_ptr<const TierFunction> tier,
                           const FlowGraph& graph, std::vector<Entry> entries, Body body)
    : program_(std::move(program)),
      tier_(std::move(tier)),
      entry_of_(tier_->function.code.size() + 1, 0),
      block_at_(graph.block_at),
      entries_(std::move(entries)),
      body_(body) {
  for (const CodeBlock& block : graph.blocks) begin_of_.push_back(block.begin);
  for (size_t e = 0; e < entries_.size(); ++e)
    entry_of_[begin_of_[entries_[e].block]] = static_cast<uint32_t>(e) + 1;
}

void CompiledBody::start(Block& block) const {
  if (block.compiled_state == nullptr) {
    auto made = std::make_unique<State>();
    made->fast_entry.resize(block.warp_count);
    made->frames.resize(block.warp_count);
    made->masks.resize(begin_of_.size());
    RunContext& context = made->context;
    context.calls = tier_->calls.data();
    context.call = call_handler;
    context.masks = made->masks.data();
    context.primary_begin = block.launch.memory->primary_begin;
    context.primary_bytes = block.launch.memory->primary_end - context.primary_begin;
    context.shared_base = reinterpret_cast<uint64_t>(block.shared);
    context.shared_bytes = block.launch.shared_bytes;
    for (uint32_t w = 0; w < block.warp_count; ++w) {
      Warp& warp = block.warps[w];
      made->frames[w] = block.new_frame(warp, tier_->function);
      warp.code = tier_->function.code.data();
    }
    block.compiled_state = std::move(made);
  }
  auto& state = static_cast<State&>(*block.compiled_state);
  state.context.block_index[0] = block.index.x;
  state.context.block_index[1] = block.index.y;
  state.context.block_index[2] = block.index.z;
  state.constants_current = false;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    const uint32_t rest = block.threads - w * kLanes;
    const uint32_t mask = rest >= kLanes ? kFullMask : (uint32_t{1} << rest) - 1;
    if (!state.fast) {
      warp.groups.clear();
      std::erase(warp.free_frames, state.frames[w]);
    }
    warp.live = mask;
    warp.group_mask = 0;
    warp.rotated = warp.yield_requested = warp.must_converge_now = false;
    warp.branch_budget = 0;
    warp.budget_limit = kBranchBudget;
    warp.frame = state.frames[w];
    warp.registers = warp.frame->registers;
    warp.code = tier_->function.code.data();
    warp.frame->lanes = mask;
    state.fast_entry[w] = kStart;
  }
  state.fast = true;
}

uint32_t CompiledBody::call_body(State& state, Warp& warp, uint32_t entry) const {
  RunContext& context = state.context;
  context.registers = state.frames[warp.index]->registers;
  context.warp = &warp;
  context.warp_pc = &warp.pc;
  context.warp_mask = &warp.mask;
  context.warp_index = warp.index;
  context.live = warp.live;
  context.exited = 0;
  context.executed = 0;
  const uint32_t outcome = body_(&context, entry);
  warp.clock += context.executed;
  return outcome;
}

// What waits in `masks` becomes groups of the scheduler.
void CompiledBody::push_waiting(State& state, Warp& warp) const {
  for (size_t b = 0; b < state.masks.size(); ++b) {
    if (state.masks[b] == 0) continue;
    Group group;
    group.mask = state.masks[b];
    group.pc = begin_of_[b];
    group.frame = state.frames[warp.index];
    group.last_run = warp.clock;
    push_group(warp, group);
    state.masks[b] = 0;
  }
}

namespace {

// Lanes that ended in compiled code end for the scheduler too.
void retire(Warp& warp, uint32_t lanes) {
  if (lanes == 0) return;
  warp.group_mask = lanes;
  set_mask(warp, lanes);
  exit_lanes(warp);
}

}  // namespace

BlockStatus CompiledBody::run(Block& block, uint64_t slice_instructions) const {
  auto& state = static_cast<State&>(*block.compiled_state);
  const uint64_t limit = block.executed() + slice_instructions;
  while (state.fast) {
    bool waits = false;
    for (uint32_t w = 0; w < block.warp_count; ++w) {
      Warp& warp = block.warps[w];
      if (state.fast_entry[w] == kEnded) continue;
      fault_guard().warp = &warp;
      state.context.owned = warp.live;
      state.context.budget = kBranchBudget;
      const uint32_t outcome = call_body(state, warp, state.fast_entry[w]);
      if (outcome == kFinished) {
        block.live_threads -= static_cast<uint32_t>(std::popcount(warp.live));
        warp.live = 0;
        state.fast_entry[w] = kEnded;
        continue;
      }
      if (outcome >= kAtBarrier) {
        const uint32_t exited = state.context.exited;
        block.live_threads -= static_cast<uint32_t>(std::popcount(exited));
        warp.live &= ~exited;
        warp.frame->lanes = warp.live;
        state.fast_entry[w] = 3 + 2 * (outcome - kAtBarrier);
        waits = true;
        continue;
      }
      // The general way for all from here on.
      warp.branch_budget = state.context.budget;
      const uint32_t stopped = outcome == kInterpret ? state.context.exit_mask : 0;
      Group group;
      group.mask = stopped;
      group.pc = state.context.exit_pc;
      group.frame = state.frames[w];
      if (stopped != 0) push_group(warp, group);
      push_waiting(state, warp);
      state.fast_entry[w] = kEnded;
      const uint32_t exited = state.context.exited;
      leave_fast_path(block, state, w);
      warp.frame = state.frames[w];
      retire(warp, exited);
      break;
    }
    if (!state.fast) break;
    if (!waits) return BlockStatus::finished;
    if (block.launch.cancelled() || block.executed() >= limit) return BlockStatus::running;
  }
  return run_general(block, state, limit);
}

// Every warp that has not been turned into groups yet becomes one. Those before the one that leaves wait at a
// barrier that they have reached in this round; the others have not had their turn since the last one opened.
void CompiledBody::leave_fast_path(Block& block, State& state, uint32_t leaving) const {
  state.fast = false;
  if (!state.constants_current) {
    for (uint32_t w = 0; w < block.warp_count; ++w) block.prepare_frame(block.warps[w], *state.frames[w]);
    state.constants_current = true;
  }
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    const uint32_t entry = state.fast_entry[w];
    if (entry == kEnded) continue;
    warp.frame = state.frames[w];
    Group group;
    group.mask = warp.live;
    group.frame = state.frames[w];
    if (entry != kStart) {
      state.context.owned = warp.live;
      (void)call_body(state, warp, entry | kUnpark);
      group.pc = begin_of_[(entry - 3) / 2] - (w < leaving ? 1 : 0);
    }
    push_group(warp, group);
  }
}

BlockStatus CompiledBody::run_general(Block& block, State& state, uint64_t limit) const {
  for (;;) {
    bool progress = false;
    for (uint32_t w = 0; w < block.warp_count; ++w) {
      Warp& warp = block.warps[w];
      if (warp.live == 0) continue;
      fault_guard().warp = &warp;
      progress |= turn(block, state, warp);
    }
    const BlockStatus status = block.status_after_round(progress);
    if (status != BlockStatus::running || block.launch.cancelled() || block.executed() >= limit)
      return status;
  }
}

bool CompiledBody::turn(Block& block, State& state, Warp& warp) const {
  bool rotate = begin_turn(warp);
  bool progress = false, turn_over = false;
  while (!turn_over && warp.live != 0) {
    if (!select_group(warp, rotate)) break;
    rotate = false;
    progress = true;
    if (enter(block, state, warp, turn_over)) continue;
    interpret(warp, state.frames[warp.index], turn_over);
  }
  return progress;
}

// Goes on in compiled code if the selected group is at an entry and every other that would have to run with
// it is where that entry expects lanes.
bool CompiledBody::enter(Block& block, State& state, Warp& warp, bool& turn_over) const {
  Frame* const frame = state.frames[warp.index];
  if (warp.frame != frame || warp.must_converge_now || entry_of_[warp.pc] == 0) return false;
  const Entry& entry = entries_[entry_of_[warp.pc] - 1];
  auto runs_along = [&](const Group& group) {
    return !warp.rotated && group.state == GroupState::runnable && group.frame == frame;
  };
  for (const Group& group : warp.groups) {
    if (!runs_along(group)) continue;
    const uint32_t b = block_at_[group.pc];
    if (b == ~0u || std::find(entry.pending.begin(), entry.pending.end(), b) == entry.pending.end())
      return false;
  }
  uint32_t owned = warp.group_mask;
  state.masks[entry.block] = warp.group_mask;
  for (const Group& group : warp.groups) {
    if (!runs_along(group)) continue;
    state.masks[block_at_[group.pc]] |= group.mask;
    owned |= group.mask;
  }
  state.context.owned = owned;
  state.context.budget = warp.branch_budget;
  const uint32_t outcome = call_body(state, warp, 2 + 2 * entry.block);
  if (outcome == kRefused) {
    std::fill(state.masks.begin(), state.masks.end(), 0);
    return false;
  }
  warp.branch_budget = state.context.budget;
  std::erase_if(warp.groups, runs_along);
  const uint32_t exited = state.context.exited;
  warp.group_mask = 0;
  push_waiting(state, warp);
  if (outcome == kInterpret && state.context.exit_mask != 0) {
    Group group;
    group.mask = state.context.exit_mask;
    group.pc = state.context.exit_pc;
    group.frame = frame;
    group.last_run = warp.clock;
    push_group(warp, group);
  }
  warp.frame = frame;
  retire(warp, exited);
  warp.group_mask = 0;
  turn_over = outcome == kTurnOver;
  (void)block;
  if (outcome == kInterpret) {
    // The instruction at which it stopped is the interpreter's.
    if (warp.live == 0 || !select_group(warp, false)) {
      turn_over = true;
      return true;
    }
    interpret(warp, frame, turn_over);
  }
  return true;
}

// Instructions one by one, at least one, until compiled code can be entered, the group stops, or the turn
// ends.
void CompiledBody::interpret(Warp& warp, const Frame* base, bool& turn_over) const {
  for (bool first = true;; first = false) {
    if (warp.pc >= warp.meet_pc || warp.group_mask == 0) {
      turn_over = warp.yield_requested || warp.branch_budget < 0;
      suspend(warp);
      return;
    }
    if (!first && warp.frame == base && entry_of_[warp.pc] != 0) {
      suspend(warp);
      return;
    }
    step(warp);
  }
}

}  // namespace softgpu::jit
