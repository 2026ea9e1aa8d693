// Groups of lanes: branching, waiting, merging; and the loop that executes instructions.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/mutex.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

// A warp's branch budget ends its turn; then, if its lanes are divided, those that wait longest go on even
// from a higher pc. The budget falls each time that this was needed, so that kernels whose lanes wait for
// each other (locks) are not held up while ordinary loops keep their lanes together.
constexpr int32_t least_budget = 256;

bool runs_before(const Group& a, const Group& b) {
  if (a.frame->depth != b.frame->depth) return a.frame->depth > b.frame->depth;
  if (a.frame != b.frame) return a.frame < b.frame;
  return a.pc < b.pc;
}

}  // namespace

void resume(Warp& warp, const Group& group) {
  warp.frame = group.frame;
  warp.registers = group.frame->registers;
  warp.code = group.frame->function->code.data();
  warp.straight = group.frame->function->straight.data();
  warp.pc = group.pc;
  warp.group_mask = group.mask;
  set_mask(warp, group.mask);
}

// Chooses the group to run next. False if none can.
bool select_group(Warp& warp, bool rotate) {
  auto& groups = warp.groups;
  ++warp.choices;
  warp.must_converge_now = false;
  if (groups.size() == 1 && groups[0].state != GroupState::converging) {  // all lanes together
    if (groups[0].state != GroupState::runnable) return false;
    resume(warp, groups[0]);
    groups.clear();
    warp.rotated = rotate;
    warp.meet_pc = no_index;
    return true;
  }
  auto best = groups.end();
  for (auto it = groups.begin(); it != groups.end(); ++it) {
    if (it->state != GroupState::runnable) continue;
    if (best == groups.end() || (rotate ? it->last_run < best->last_run : runs_before(*it, *best))) best = it;
  }
  warp.must_converge_now = false;
  if (best == groups.end()) {
    // Nobody else can come: what waits for more lanes goes on with those it has.
    for (auto it = groups.begin(); it != groups.end(); ++it) {
      if (it->state == GroupState::converging && (best == groups.end() || runs_before(*it, *best))) best = it;
    }
    if (best == groups.end()) return false;
    warp.must_converge_now = true;
  }
  Group chosen = *best;
  groups.erase(best);
  for (auto it = groups.begin(); it != groups.end();) {
    const bool same = it->frame == chosen.frame && it->pc == chosen.pc &&
                      (it->state == GroupState::runnable || it->state == GroupState::converging);
    if (same) chosen.mask |= it->mask;
    it = same ? groups.erase(it) : it + 1;
  }
  warp.rotated = rotate;
  warp.meet_pc = no_index;
  if (!rotate) {
    for (const Group& other : groups) {
      const bool may_meet = other.state == GroupState::runnable || other.state == GroupState::converging;
      if (may_meet && other.frame == chosen.frame && other.pc > chosen.pc) {
        warp.meet_pc = std::min(warp.meet_pc, other.pc);
      }
    }
  }
  resume(warp, chosen);
  return true;
}

// Puts the running group among the others.
void suspend(Warp& warp) {
  if (warp.group_mask == 0) return;
  Group group;
  group.mask = warp.group_mask;
  group.pc = warp.pc;
  group.frame = warp.frame;
  group.last_run = warp.clock;
  warp.group_mask = 0;
  push_group(warp, group);
}

namespace {

void execute(Warp& warp) {
  for (;;) {
    if (warp.pc >= warp.meet_pc) [[unlikely]] {
      const bool yields = warp.yield_requested || warp.branch_budget < 0 || warp.choices >= most_choices;
      suspend(warp);
      if (warp.live == 0 || yields) return;
      if (!select_group(warp, false)) return;
    }
    if (const uint32_t straight = warp.straight[warp.pc]; straight != 0) {
      const uint32_t begin = warp.pc;
      uint32_t pc = begin;
      const uint32_t end = pc + std::min(straight, warp.meet_pc - pc);
      const Instruction* in = warp.code + pc;
      do {
        warp.pc = ++pc;  // handlers, and the report of a fault, want to know
        in->handler(warp, *in);
        ++in;
      } while (pc != end && warp.meet_pc != 0);  // 0: the lanes wait, or give others their turn
      warp.clock += pc - begin;
      continue;
    }
    const Instruction& in = warp.code[warp.pc++];
    ++warp.clock;
    if (in.guard == 0) [[likely]] {
      in.handler(warp, in);
      continue;
    }
    uint32_t lanes;
    std::memcpy(&lanes, warp.registers + ((in.guard >> 1) - 1) * 4, 4);
    if (in.guard & 1) lanes = ~lanes;
    lanes &= warp.group_mask;
    if (lanes == 0) continue;
    if (lanes == warp.group_mask) {
      in.handler(warp, in);
      continue;
    }
    set_mask(warp, lanes);
    in.handler(warp, in);
    set_mask(warp, warp.group_mask);
  }
}

// The lanes that execute this instruction leave the running group.
void detach_lanes(Warp& warp) {
  warp.group_mask &= ~warp.mask;
  if (warp.group_mask == 0) {
    warp.meet_pc = 0;
  } else {
    set_mask(warp, warp.group_mask);
  }
}

}  // namespace

void push_group(Warp& warp, const Group& group) {
  if (group.state == GroupState::runnable) {
    for (Group& other : warp.groups) {
      if (other.pc == group.pc && other.frame == group.frame && other.state == GroupState::runnable) {
        other.mask |= group.mask;
        return;
      }
    }
  }
  warp.groups.push_back(group);
}

// A new one, to be filled in place: what is written in parts is slow to copy at once.
static Group& add_group(Warp& warp, uint32_t mask, uint32_t pc) {
  Group& group = warp.groups.emplace_back();
  group.mask = mask;
  group.pc = pc;
  group.frame = warp.frame;
  group.last_run = warp.clock;
  return group;
}

void step(Warp& warp) {
  const Instruction& in = warp.code[warp.pc++];
  ++warp.clock;
  uint32_t lanes = warp.group_mask;
  if (in.guard != 0) {
    uint32_t holds;
    std::memcpy(&holds, warp.registers + ((in.guard >> 1) - 1) * 4, 4);
    lanes &= in.guard & 1 ? ~holds : holds;
  }
  if (lanes == 0) return;
  const bool all = lanes == warp.group_mask;
  if (!all) set_mask(warp, lanes);
  in.handler(warp, in);
  if (!all) set_mask(warp, warp.group_mask);
}

bool begin_turn(Warp& warp) {
  const bool rotate = (warp.yield_requested || warp.branch_budget < 0 || warp.choices >= most_choices) &&
                      std::count_if(warp.groups.begin(), warp.groups.end(), [](const Group& group) {
                        return group.state == GroupState::runnable;
                      }) > 1;
  warp.yield_requested = false;
  warp.sleeps_ns = 0;
  if (rotate) warp.budget_limit = std::max(least_budget, warp.budget_limit / 2);
  warp.branch_budget = warp.budget_limit;
  warp.turn_end = warp.clock + full_turn;
  warp.choices = 0;
  return rotate;
}

bool run_warp(Warp& warp) {
  warp.keeps_shapes = true;  // every instruction goes by here
  if (!select_group(warp, begin_turn(warp))) return false;
  execute(warp);
  return true;
}

void branch(Warp& warp, uint32_t target, uint32_t taken) {
  ReachedMarks* const reached = warp.frame->function->reached.get();
  const uint32_t rest = warp.group_mask & ~taken;
  if (reached != nullptr) {
    if (taken != 0) reached->add(target);
    if (rest != 0) reached->add(warp.pc);
  }
  if (taken == 0) return;
  if (target < warp.pc && (--warp.branch_budget < 0 || warp.clock >= warp.turn_end)) {
    warp.branch_budget = -1;
    warp.meet_pc = 0;
  }
  if (rest == 0) {
    warp.pc = target;
    return;
  }
  // The lower of the two goes on.
  Group other;
  other.frame = warp.frame;
  other.last_run = warp.clock;
  if (target < warp.pc) {
    other.pc = warp.pc;
    other.mask = rest;
    warp.pc = target;
    warp.group_mask = taken;
  } else {
    other.pc = target;
    other.mask = taken;
    warp.group_mask = rest;
  }
  push_group(warp, other);
  if (!warp.rotated) warp.meet_pc = std::min(warp.meet_pc, other.pc);
  set_mask(warp, warp.group_mask);
}

const TextureView* find_texture(Warp& warp, uint64_t handle, bool surface) {
  LaunchState& launch = warp.block->launch;
  const gpupool::MutexLock lock(launch.textures_mutex);
  auto& known = launch.textures[surface ? 1 : 0];
  if (const auto found = known.find(handle); found != known.end()) return found->second.get();
  if (!launch.services->texture) return nullptr;
  auto view = launch.services->texture(handle, surface);
  return view == nullptr ? nullptr : (known[handle] = std::move(view)).get();
}

void exit_lanes(Warp& warp) {
  const uint32_t lanes = warp.mask;
  Block& block = *warp.block;
  warp.live &= ~lanes;
  block.live_threads -= count_lanes(lanes);
  for (Frame* frame = warp.frame; frame != nullptr;) {
    Frame* const parent = frame->parent;
    frame->lanes &= ~lanes;
    if (frame->lanes == 0 && parent != nullptr) block.release_frame(warp, frame);
    if (frame->lanes == 0 && parent == nullptr) {
      block.release_frame(warp, frame);
      warp.frame = nullptr;
    }
    frame = parent;
  }
  detach_lanes(warp);
  // The others may have waited for these only.
  if (block.barriers_in_use != 0) block.open_barriers();
}

// The running lanes that are in `lanes` wait at the instruction that they are about to execute.
static void wait_to_converge(Warp& warp, uint32_t lanes) {
  Group group;
  group.mask = lanes;
  group.pc = warp.pc - 1;
  group.frame = warp.frame;
  group.state = GroupState::converging;
  group.last_run = warp.clock;
  warp.group_mask &= ~lanes;
  warp.meet_pc = 0;
  push_group(warp, group);
}

static void note_convergence(Warp& warp, const Instruction& in, uint32_t members) {
  BlockChecks* const checks = warp.block->checks.get();
  if (checks == nullptr) [[likely]]
    return;
  if ((members & ~warp.mask) != 0) checks->lanes_missing(warp, in, members & ~warp.mask);
  checks->warp_synchronised(warp, members & warp.mask);
}

// Lanes that wait at this very instruction in another call of its function have their registers elsewhere:
// what would be exchanged with them is not theirs.
static void refuse_calls_apart(Warp& warp, const Instruction& in, uint32_t missing) {
  for (const Group& other : warp.groups) {
    const bool waits = other.state == GroupState::converging && (other.mask & missing) != 0;
    if (waits && other.frame != warp.frame && other.frame->function == warp.frame->function &&
        other.pc == warp.pc - 1) {
      raise_fault(warp, in, Fault::illegal_instruction,
                  "lanes of a warp meet in a function that they called at different places", 0,
                  static_cast<uint32_t>(std::countr_zero(other.mask)));
    }
  }
}

bool converge(Warp& warp, const Instruction& in, uint32_t members, bool exchanges) {
  const uint32_t missing = members & warp.live & ~warp.mask;
  if (missing == 0 || warp.must_converge_now) {
    if (missing != 0 && exchanges) refuse_calls_apart(warp, in, missing);
    warp.must_converge_now = false;
    note_convergence(warp, in, members);
    return true;
  }
  wait_to_converge(warp, warp.mask);
  if (warp.group_mask != 0) set_mask(warp, warp.group_mask);
  return false;
}

uint32_t converge_apart(Warp& warp, const Instruction& in, const uint32_t* members, bool exchanges) {
  const uint32_t here = warp.mask;
  uint32_t waiting = 0;
  if (!warp.must_converge_now) {
    auto named_by = [&](uint32_t lanes) {
      uint32_t named = 0;
      for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) named |= members[std::countr_zero(rest)];
      return named;
    };
    for (uint32_t rest = here; rest != 0; rest &= rest - 1) {
      const uint32_t lane = rest & -rest;
      if ((named_by(lane) & warp.live & ~here) != 0) waiting |= lane;
    }
    // Lanes for which a waiting one waits stay with it.
    for (uint32_t before = 0; waiting != before;) {
      before = waiting;
      waiting |= named_by(waiting) & here;
    }
  }
  if (warp.must_converge_now && exchanges) {
    uint32_t named = 0;
    for (uint32_t rest = here; rest != 0; rest &= rest - 1) named |= members[std::countr_zero(rest)];
    refuse_calls_apart(warp, in, named & warp.live & ~here);
  }
  warp.must_converge_now = false;
  const uint32_t going = here & ~waiting;
  for (uint32_t rest = going; rest != 0; rest &= rest - 1) {
    note_convergence(warp, in, members[std::countr_zero(rest)]);
  }
  if (waiting != 0) wait_to_converge(warp, waiting);
  return going;
}

void block_on_barrier(Warp& warp, const Instruction& in, uint32_t id, uint32_t expected, bool wait,
                      uint32_t reduction, uint32_t result_register, uint32_t predicate) {
  Block& block = *warp.block;
  if (id >= block_barriers)
    raise_fault(warp, in, Fault::illegal_instruction, "barrier number out of range", id);
  Barrier& barrier = block.barriers[id];
  block.barriers_in_use |= uint32_t{1} << id;
  if (expected != 0) barrier.expected = expected;
  barrier.count += count_lanes(warp.mask);
  barrier.extra += count_lanes(barrier.arrived[warp.index] & warp.mask);
  barrier.arrived[warp.index] |= warp.mask;
  const uint32_t truths = predicate & warp.mask;
  barrier.population += count_lanes(truths);
  barrier.all &= truths == warp.mask;
  barrier.any |= truths != 0;
  if (block.checks) block.checks->arrived(warp, id);
  if (wait) {
    Group& group = add_group(warp, warp.mask, warp.pc);
    group.state = GroupState::at_barrier;
    group.barrier = static_cast<uint8_t>(id);
    group.result_register = reduction != 0 ? result_register : no_index;
    group.reduction = reduction;
    detach_lanes(warp);
    warp.meet_pc = 0;
  }
  if (barrier.expected != 0 || barrier.count >= block.live_threads) block.open_barriers();
}

void wait_for_arrivals(Warp& warp, uint32_t id) {
  Block& block = *warp.block;
  const uint32_t waiting = warp.mask & block.barriers[id].arrived[warp.index];
  if (block.checks) block.checks->passed(warp, id, warp.mask & ~waiting);
  if (waiting == 0) return;
  set_mask(warp, waiting);
  Group& group = add_group(warp, waiting, warp.pc);
  group.state = GroupState::at_barrier;
  group.barrier = static_cast<uint8_t>(id);
  detach_lanes(warp);
  warp.meet_pc = 0;
}

}  // namespace softgpu
