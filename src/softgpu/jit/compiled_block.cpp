// Running blocks of a compiled kernel. Two ways:
//
// The fast one: all warps are in compiled code from the kernel's beginning or from a barrier that each
// reached as a whole. Nothing of the interpreter's state is kept up meanwhile; the barrier opens by itself,
// and the next block of the row begins without leaving the code.
//
// The general one: as soon as a warp stops elsewhere, every warp's lanes are groups of the interpreter's
// scheduler again. A group at a place where compiled code can be entered continues there, otherwise the
// interpreter takes it on to such a place.
#include "softgpu/jit/compiled_block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/mutex.h"
#include "softgpu/exec/run/block.h"

namespace softgpu::jit {
namespace {

constexpr uint32_t most_rounds =
    4096;  // of all warps from barrier to barrier, before a cancellation is looked for
// That are taken together: with fewer, what is fetched ahead is the other threads', and the own beginning is
// not.
constexpr uint32_t most_blocks = 512;

// Lanes that ended in compiled code end for the scheduler too.
void retire(Warp& warp, uint32_t lanes) {
  if (lanes != 0) {
    warp.group_mask = lanes;
    set_mask(warp, lanes);
    exit_lanes(warp);
  }
  warp.group_mask = 0;
}

}  // namespace

struct CompiledBody::State : CompiledBlockState {
  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  bool fast = true;
  uint64_t first = 0;  // linear index of the first of the blocks that were taken together
  uint32_t first_x = 0;
  std::unique_ptr<std::byte[], FreeAligned> registers;
  std::vector<Frame> frames;  // by warp
  std::vector<uint32_t> warp_entries;
  std::vector<uint32_t> masks;
  RunContext context;
};

// What compiled code calls where it has none of its own.
void CompiledBody::call_handler(Warp& warp, const Instruction& in, uint32_t mask) {
  const auto& state = static_cast<const State&>(*warp.block->compiled_state);
  warp.pc = static_cast<uint32_t>(&in - state.context.calls) + 1;
  warp.group_mask = mask;
  set_mask(warp, mask);
  // Compiled code has seen that all lanes are here that have not left. Of those that left in this run, the
  // warp does not know yet: converge() would wait for them.
  warp.must_converge_now = true;
  in.handler(warp, in);
  warp.must_converge_now = false;
}

CompiledBody::CompiledBody(std::unique_ptr<const TierFunction> tier, const FlowGraph& graph,
                           std::vector<Entry> entries, std::vector<std::vector<SavedRegister>> exits,
                           ReadConstants constants, Body body)
    : tier_(std::move(tier)),
      entry_of_(tier_->function.code.size() + 1, 0),
      block_at_(graph.block_at),
      has_barriers_(graph.has_barriers),
      entries_(std::move(entries)),
      exits_(std::move(exits)),
      constants_(std::move(constants)),
      body_(body) {
  for (const CodeBlock& block : graph.blocks) {
    begin_of_.push_back(block.begin);
    left_out_.push_back(block.left_out);
  }
  for (size_t e = 0; e < entries_.size(); ++e)
    entry_of_[begin_of_[entries_[e].block]] = static_cast<uint32_t>(e) + 1;
}

void CompiledBody::make_state(Block& block) const {
  const LaunchState& launch = block.launch;
  auto made = std::make_unique<State>();
  const uint32_t bytes = tier_->function.register_bytes;
  block.launch.take_registers(uint64_t{bytes} * block.warp_count);
  made->registers.reset(
      static_cast<std::byte*>(::operator new[](size_t{bytes} * block.warp_count, std::align_val_t{64})));
  made->warp_entries.resize(block.warp_count);
  made->frames.resize(block.warp_count);
  made->masks.resize(begin_of_.size());
  RunContext& context = made->context;
  context.registers = made->registers.get();
  context.register_bytes = bytes;
  context.warps = block.warps.get();
  context.calls = tier_->calls.data();
  context.call = call_handler;
  context.masks = made->masks.data();
  context.entries = made->warp_entries.data();
  context.block_x = &block.index.x;
  context.primary_begin = launch.memory->primary_begin;
  // Another beginning is left to the interpreter, access by access.
  const bool aligned = context.primary_begin % window_alignment == 0;
  context.primary_bytes = aligned ? launch.memory->primary_end - context.primary_begin : 0;
  context.shared_base = reinterpret_cast<uint64_t>(block.shared);
  context.shared_bytes = launch.shared_bytes;
  context.parameters = launch.parameter_address;
  context.parameter_bytes = launch.parameters.size();
  context.threads = block.threads;
  context.warp_count = block.warp_count;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    Frame& frame = made->frames[w];
    frame.function = &tier_->function;
    frame.registers = made->registers.get() + size_t{bytes} * w;
    // leave_fast_path() prepares the rest: frame.block_serial says that nothing is there yet.
    auto fill = [&](const std::vector<uint32_t>& constants) {
      for (const uint32_t c : constants)
        block.fill_constant(block.warps[w], frame.registers, tier_->function.constants[c]);
    };
    if (w == 0) fill(constants_.of_first);
    fill(constants_.of_each);
  }
  block.compiled_state = std::move(made);
}

void CompiledBody::start(Block& block) const {
  if (block.compiled_state == nullptr) make_state(block);
  auto& state = static_cast<State&>(*block.compiled_state);
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    const uint32_t rest = block.threads - w * warp_lanes;
    if (!state.fast) {
      warp.groups.clear();
      std::erase(warp.free_frames, &state.frames[w]);
    }
    warp.live = rest >= warp_lanes ? full_mask : (uint32_t{1} << rest) - 1;
    warp.group_mask = 0;
    warp.rotated = warp.yield_requested = warp.must_converge_now = false;
    warp.branch_budget = 0;
    warp.budget_limit = full_branch_budget;
    warp.frame = &state.frames[w];
    warp.registers = warp.frame->registers;
    warp.code = tier_->function.code.data();
    state.warp_entries[w] = start_entry;
  }
  state.fast = true;
  RunContext& context = state.context;
  context.block_index[0] = block.index.x;
  context.block_index[1] = block.index.y;
  context.block_index[2] = block.index.z;
  context.warp_index = context.waits = 0;
  context.block_end = block.index.x + 1;
  state.first_x = block.index.x;
  const Dim3 grid = block.launch.request->grid;
  state.first = (uint64_t{block.index.z} * grid.y + block.index.y) * grid.x + block.index.x;
  take_more_blocks(block, state);
}

// The next blocks of the row, if nobody has taken them and all threads keep enough to do.
void CompiledBody::take_more_blocks(Block& block, State& state) const {
  LaunchState& launch = block.launch;
  if (launch.request->cooperative) return;
  const uint64_t in_row = launch.request->grid.x - block.index.x - 1;
  const uint64_t remaining = launch.blocks - std::min(launch.blocks, state.first + 1);
  const uint64_t fair =
      launch.multiprocessors == 1 ? remaining : remaining / (4 * uint64_t{launch.multiprocessors});
  const uint64_t count = std::min({in_row, fair, uint64_t{most_blocks}});
  if (count == 0) return;
  uint64_t expected = state.first + 1;
  if (launch.next_block.compare_exchange_strong(expected, expected + count))
    state.context.block_end += static_cast<uint32_t>(count);
}

// After the last of the blocks that this one took; the caller counts one.
void CompiledBody::end_blocks(Block& block, State& state) const {
  block.live_threads = 0;
  block.launch.blocks_finished += state.context.block_end - state.first_x - 1;
}

BlockStatus CompiledBody::run(Block& block, uint64_t slice_instructions) const {
  auto& state = static_cast<State&>(*block.compiled_state);
  RunContext& context = state.context;
  const uint64_t limit = block.executed() + slice_instructions;
  context.running = &fault_guard().warp;
  while (state.fast) {
    context.executed = 0;
    context.rounds = most_rounds;
    context.budget = full_branch_budget;
    const uint32_t before = context.block_index[0];
    const uint32_t outcome = body_(&context, all_warps_entry);
    const uint64_t whole_blocks = context.block_index[0] - before;
    block.warps[0].clock += context.executed + whole_blocks * block.warp_count * tier_->function.code.size();
    if (outcome == outcome_finished) {
      end_blocks(block, state);
      return BlockStatus::finished;
    }
    if (outcome != outcome_look_in) leave_fast_path(block, state, outcome);
    if (block.launch.cancelled() || block.executed() >= limit) return BlockStatus::running;
  }
  return run_general(block, state, limit);
}

// Every warp becomes a group. Those before the one that leaves wait at a barrier that they have reached in
// this round; those behind it have not had their turn since the last one opened.
void CompiledBody::leave_fast_path(Block& block, State& state, uint32_t outcome) const {
  RunContext& context = state.context;
  LaunchState& launch = block.launch;
  const uint32_t done = context.block_index[0] - state.first_x;
  launch.blocks_finished += done;
  block.index.x = context.block_index[0];
  ++block.serial;
  if (const uint32_t rest = context.block_end - context.block_index[0] - 1; rest != 0) {
    const gpupool::MutexLock lock(launch.mutex);
    for (uint32_t k = rest; k > 0; --k) launch.returned_blocks.push_back(state.first + done + k);
    launch.returned_count += rest;
  }
  context.block_end = context.block_index[0] + 1;
  state.fast = false;
  const uint32_t leaving = context.warp_index;
  block.live_threads = 0;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    Frame& frame = state.frames[w];
    // Without barriers, the warps before have ended, and nobody has noted it.
    if (!has_barriers_ && w < leaving) warp.live = 0;
    block.prepare_frame(warp, frame);
    frame.block_serial = block.serial;
    frame.lanes = warp.live;
    frame.parent = nullptr;
    warp.frame = &frame;
    block.live_threads += static_cast<uint32_t>(std::popcount(warp.live));
    const uint32_t entry = state.warp_entries[w];
    if (w == leaving || entry == ended_entry || warp.live == 0) continue;
    Group group;
    group.mask = warp.live;
    group.frame = &frame;
    if (entry != start_entry) {
      const uint32_t b = (entry - barrier_entry(0)) / 2;
      for (const SavedRegister& saved : entries_[entry_of_[begin_of_[b]] - 1].barrier_registers)
        bring_home(frame.registers, saved, warp.live);
      group.pc = begin_of_[b] - (w < leaving ? 1 : 0);
    }
    push_group(warp, group);
  }
  Warp& warp = block.warps[leaving];
  context.owned = warp.live;
  stopped(state, warp, outcome);
}

// Compiled code has left: its lanes are groups from here on.
void CompiledBody::stopped(State& state, Warp& warp, uint32_t outcome) const {
  RunContext& context = state.context;
  Frame& frame = state.frames[warp.index];
  warp.branch_budget = context.budget;
  warp.group_mask = 0;
  if (outcome != outcome_finished) {
    for (const SavedRegister& saved : exits_[context.exit_table])
      bring_home(frame.registers, saved, context.owned);
  }
  auto push = [&](uint32_t lanes, uint32_t pc) {
    Group group;
    group.mask = lanes;
    group.pc = pc;
    group.frame = &frame;
    group.last_run = warp.clock;
    push_group(warp, group);
  };
  for (size_t b = 0; b < state.masks.size(); ++b) {
    if (state.masks[b] != 0) push(state.masks[b], begin_of_[b]);
    state.masks[b] = 0;
  }
  if (outcome == outcome_interpret && context.exit_mask != 0) push(context.exit_mask, context.exit_pc);
  warp.frame = &frame;
  retire(warp, context.exited);
}

BlockStatus CompiledBody::run_general(Block& block, State& state, uint64_t limit) const {
  for (;;) {
    bool progress = false;
    uint32_t rests = no_index;
    for (uint32_t w = 0; w < block.warp_count; ++w) {
      Warp& warp = block.warps[w];
      if (warp.live == 0) continue;
      fault_guard().warp = &warp;
      if (!turn(state, warp)) continue;
      progress = true;
      Block::note_turn(warp, rests);
    }
    const BlockStatus status = block.status_after_round(progress);
    if (status != BlockStatus::running || block.launch.cancelled() || block.executed() >= limit ||
        block.gives_way(rests))
      return status;
  }
}

bool CompiledBody::turn(State& state, Warp& warp) const {
  bool rotate = begin_turn(warp);
  bool progress = false, turn_over = false;
  while (!turn_over && warp.live != 0 && warp.choices < most_choices) {
    if (!select_group(warp, rotate)) break;
    rotate = false;
    progress = true;
    if (enter(state, warp, turn_over)) continue;
    interpret(warp, &state.frames[warp.index], turn_over);
  }
  return progress;
}

// Goes on in compiled code if the selected group is at an entry and every other that would have to run with
// it is where that entry expects lanes.
bool CompiledBody::enter(State& state, Warp& warp, bool& turn_over) const {
  Frame* const frame = &state.frames[warp.index];
  if (warp.frame != frame || warp.must_converge_now || entry_of_[warp.pc] == 0) return false;
  const Entry& entry = entries_[entry_of_[warp.pc] - 1];
  auto runs_along = [&](const Group& group) {
    return !warp.rotated && group.state == GroupState::runnable && group.frame == frame;
  };
  uint32_t owned = warp.group_mask;
  for (const Group& group : warp.groups) {
    if (!runs_along(group)) continue;
    const uint32_t b = block_at_[group.pc];
    if (b == ~0u || std::find(entry.pending.begin(), entry.pending.end(), b) == entry.pending.end())
      return false;
    owned |= group.mask;
  }
  for (const SavedRegister& saved : entry.registers) {
    if (!put_on_stage(frame->registers, saved, owned)) return false;
  }
  state.masks[entry.block] = warp.group_mask;
  for (const Group& group : warp.groups) {
    if (runs_along(group)) state.masks[block_at_[group.pc]] |= group.mask;
  }
  std::erase_if(warp.groups, runs_along);
  RunContext& context = state.context;
  context.owned = owned;
  context.budget = warp.branch_budget;
  context.warp_index = warp.index;
  context.executed = 0;
  const uint32_t outcome = body_(&context, general_entry(entry.block));
  warp.clock += context.executed;
  stopped(state, warp, outcome);
  turn_over = outcome == outcome_turn_over;
  if (outcome == outcome_interpret) {
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
    if (warp.frame == base) note_left_out(warp.pc);
    step(warp);
  }
}

// Also where the interpreter has found the way itself, as from an indexed branch.
void CompiledBody::note_left_out(uint32_t pc) const {
  const uint32_t b = block_at_[pc];
  if (b == ~0u || !left_out_[b]) return;
  ++times_in_left_out_;
  tier_->function.reached->add(pc);
}

}  // namespace softgpu::jit
