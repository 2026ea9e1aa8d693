#include "softgpu/jit/flow_graph.h"

#include <algorithm>

namespace softgpu::jit {
namespace {

void transfer(const LoweredInstruction& instruction, Set& live) {
  auto def = [&](uint32_t bits) {
    // A guarded definition leaves the other lanes' value.
    if (!instruction.guarded) live.remove(Ref::from_bits(bits).index());
  };
  for (uint32_t k = 0; k < instruction.defs; ++k) def(instruction.in.op[k]);
  for (uint32_t k = 0; k < instruction.list_defs; ++k) def(instruction.list[k]);
  auto use = [&](uint32_t bits) {
    const Ref ref = Ref::from_bits(bits);
    if (!ref.is_constant()) live.add(ref.index());
  };
  if (instruction.guarded) {
    for (uint32_t k = 0; k < instruction.defs; ++k) use(instruction.in.op[k]);
    for (uint32_t k = 0; k < instruction.list_defs; ++k) use(instruction.list[k]);
    live.add(instruction.guard);
  }
  for (uint32_t k = instruction.defs; k < uint32_t{instruction.defs} + instruction.uses; ++k)
    use(instruction.in.op[k]);
  if (instruction.flow != Flow::indexed_jump) {
    for (size_t k = instruction.list_defs; k < instruction.list.size(); ++k) use(instruction.list[k]);
  }
}

}  // namespace

Treatment treatment(const LoweredInstruction& instruction) {
  const std::string_view name = instruction.opcode;
  auto is = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (name == "@barrier") {
    const bool plain = instruction.in.aux == 1 && !instruction.guarded && instruction.uses == 1 &&
                       Ref::from_bits(instruction.in.op[0]).is_constant();
    return plain ? Treatment::barrier : Treatment::interpret;
  }
  auto is_one_of = [&](std::initializer_list<std::string_view> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), is);
  };
  const bool waits = is_one_of({"shfl.", "vote.", "match.", "redux.", "elect"}) &&
                     name.find("sync") != std::string_view::npos;
  if (waits || is_one_of({"bar.warp.sync", "mma.", "@ldmatrix", "ldmatrix", "@stmatrix", "stmatrix",
                          "movmatrix", "@wmma.", "wmma."})) {
    return instruction.guarded ? Treatment::interpret : Treatment::converge;
  }
  // Handlers that may make lanes wait or change the scheduler's state are the interpreter's alone; and so are
  // internal steps that are not known to leave it as it is.
  const bool known_step = is_one_of({"@load",
                                     "@vload",
                                     "@store",
                                     "@vstore",
                                     "@atom",
                                     "@pack",
                                     "@unpack",
                                     "@trunc",
                                     "@zext",
                                     "@sext",
                                     "@clock",
                                     "@globaltimer",
                                     "@local_",
                                     "@parameter_address",
                                     "@nothing",
                                     "@cp.async",
                                     "@tex",
                                     "@suld",
                                     "@sust",
                                     "@mbarrier.init",
                                     "@mbarrier.inval",
                                     "@mbarrier.arrive",
                                     "@mbarrier.pending_count",
                                     "@ret",
                                     "@bra",
                                     "@video"});
  const bool may_wait = name.empty() || is("nanosleep") || name.find(".sync") != std::string_view::npos ||
                        name.find(".aligned") != std::string_view::npos;
  if (name.starts_with('@') ? !known_step : may_wait) return Treatment::interpret;
  return Treatment::straight;
}

FlowGraph::FlowGraph(const LoweredFunction& function, const std::vector<bool>* reached) : lowered(function) {
  const auto size = static_cast<uint32_t>(lowered.code.size());
  std::vector<bool> leader(size + 1, false), resumable(size + 1, false);
  leader[0] = true;
  auto target_of = [&](uint64_t label) { return lowered.label_target[static_cast<size_t>(label)]; };
  for (uint32_t i = 0; i < size; ++i) {
    const LoweredInstruction& instruction = lowered.code[i];
    const Treatment how = treatment(instruction);
    if (instruction.flow != Flow::next || how == Treatment::barrier || how == Treatment::interpret)
      leader[i + 1] = true;
    if (how == Treatment::barrier || how == Treatment::interpret) {
      leader[i + 1] = resumable[i + 1] = true;
    }
    has_barriers |= how == Treatment::barrier;
    takes_addresses_of_parameters |= instruction.opcode == "@parameter_address";
    if (instruction.flow == Flow::jump || instruction.flow == Flow::conditional_jump) {
      const uint32_t target = target_of(static_cast<uint64_t>(instruction.in.immediate));
      leader[target] = true;
      if (target <= i) resumable[target] = true;
    } else if (instruction.flow == Flow::indexed_jump) {
      for (const uint32_t label : instruction.list)
        leader[target_of(label)] = resumable[target_of(label)] = true;
    }
  }
  block_at.assign(size + 1, ~0u);
  for (uint32_t i = 0; i < size; ++i) {
    if (!leader[i]) continue;
    if (!blocks.empty()) blocks.back().end = i;
    block_at[i] = static_cast<uint32_t>(blocks.size());
    blocks.push_back(CodeBlock{i, size, {}, Set(lowered.registers.size()), resumable[i], false, false});
  }
  for (CodeBlock& block : blocks) {
    const LoweredInstruction& last = lowered.code[block.end - 1];
    auto add = [&](uint32_t instruction) {
      if (instruction >= size) return;
      const uint32_t b = block_at[instruction];
      if (std::find(block.successors.begin(), block.successors.end(), b) == block.successors.end())
        block.successors.push_back(b);
    };
    if (last.flow == Flow::jump || last.flow == Flow::conditional_jump)
      add(target_of(static_cast<uint64_t>(last.in.immediate)));
    if (last.flow == Flow::indexed_jump) {
      for (const uint32_t label : last.list) add(target_of(label));
    }
    if (last.flow == Flow::next || last.flow == Flow::conditional_jump ||
        (last.guarded && last.flow == Flow::end)) {
      add(block.end);
    }
  }
  if (reached != nullptr) leave_out_unreached(*reached);
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    has_entries |= blocks[b].resumable;
    for (const uint32_t s : blocks[b].successors) {
      has_loops |= s <= b;
      for (uint32_t k = s; k <= b; ++k) blocks[k].in_loop = true;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks.size(); b-- > 0;) {
      Set live(lowered.registers.size());
      for (const uint32_t s : blocks[b].successors) live.add_all(blocks[s].live_in);
      for (uint32_t i = blocks[b].end; i-- > blocks[b].begin;) transfer(lowered.code[i], live);
      changed |= blocks[b].live_in.add_all(live);
    }
  }
}

// Blocks to which no way leads from the beginning: of a branch on a condition, the ways that lanes have
// taken. Where such a block goes on in code that is not left out, the interpreter comes back.
void FlowGraph::leave_out_unreached(const std::vector<bool>& reached) {
  for (CodeBlock& block : blocks) block.left_out = true;
  blocks[0].left_out = false;
  std::vector<uint32_t> work{0};
  while (!work.empty()) {
    const CodeBlock& block = blocks[work.back()];
    work.pop_back();
    const Flow flow = lowered.code[block.end - 1].flow;
    const bool chooses = flow == Flow::conditional_jump || flow == Flow::indexed_jump;
    for (const uint32_t s : block.successors) {
      if (!blocks[s].left_out || (chooses && !reached[blocks[s].begin])) continue;
      blocks[s].left_out = false;
      work.push_back(s);
    }
  }
  for (const CodeBlock& block : blocks) {
    if (!block.left_out) continue;
    for (const uint32_t s : block.successors) blocks[s].resumable = true;
  }
  for (CodeBlock& block : blocks) block.resumable &= !block.left_out;
}

Set FlowGraph::live_before(uint32_t b, uint32_t i) const {
  Set live(lowered.registers.size());
  for (const uint32_t s : blocks[b].successors) live.add_all(blocks[s].live_in);
  for (uint32_t k = blocks[b].end; k-- > i;) transfer(lowered.code[k], live);
  return live;
}

}  // namespace softgpu::jit
