// Liveness and linear scan. Virtual registers of PTX are in near-SSA form, hundreds per kernel; sharing
// slots keeps a warp's register file in the nearest cache.
//
// Per-thread liveness is enough although 32 threads share a file: lanes are independent columns and every
// write is masked. Registers of different sizes never share a slot, so a handler may read a source and
// write its destination in one loop.
#include <algorithm>
#include <queue>

#include "softgpu/exec/program/checked_access.h"
#include "softgpu/exec/program/lowered.h"
#include "softgpu/exec/program/memory_operand.h"

namespace softgpu {
namespace {

constexpr uint32_t register_alignment = 64;
constexpr size_t max_liveness_bits = size_t{1} << 29;  // beyond, every register gets its own slot

struct BasicBlock {
  uint32_t begin, end;  // instructions
  std::vector<uint32_t> successors;
};

struct Interval {
  uint32_t reg = 0;
  uint32_t begin = ~0u, end = 0;
  [[nodiscard]] bool used() const { return begin <= end; }
  void cover(uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
};

template <class Visit>
void each_use(const LoweredInstruction& instruction, Visit visit) {
  auto see = [&](uint32_t bits) {
    const Ref ref = Ref::from_bits(bits);
    if (!ref.is_constant()) visit(ref.index());
  };
  for (uint32_t k = instruction.defs; k < uint32_t{instruction.defs} + instruction.uses; ++k)
    see(instruction.in.op[k]);
  if (instruction.flow != Flow::indexed_jump) {
    for (size_t k = instruction.list_defs; k < instruction.list.size(); ++k) see(instruction.list[k]);
  }
  if (instruction.guarded) visit(instruction.guard);
}
template <class Visit>
void each_def(const LoweredInstruction& instruction, Visit visit) {
  for (uint32_t k = 0; k < instruction.defs; ++k) visit(Ref::from_bits(instruction.in.op[k]).index());
  for (uint32_t k = 0; k < instruction.list_defs; ++k) visit(Ref::from_bits(instruction.list[k]).index());
}

std::vector<BasicBlock> find_blocks(const LoweredFunction& lowered) {
  const auto size = static_cast<uint32_t>(lowered.code.size());
  std::vector<bool> leader(size + 1, false);
  leader[0] = true;
  for (const uint32_t target : lowered.label_target) leader[std::min(target, size)] = true;
  for (uint32_t i = 0; i < size; ++i) {
    if (lowered.code[i].flow != Flow::next) leader[i + 1] = true;
  }
  std::vector<BasicBlock> blocks;
  std::vector<uint32_t> block_of(size + 1, 0);
  for (uint32_t i = 0; i < size; ++i) {
    if (leader[i]) {
      if (!blocks.empty()) blocks.back().end = i;
      blocks.push_back(BasicBlock{i, size, {}});
    }
    block_of[i] = static_cast<uint32_t>(blocks.size() - 1);
  }
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    const LoweredInstruction& last = lowered.code[blocks[b].end - 1];
    auto& next = blocks[b].successors;
    auto add = [&](uint32_t instruction) {
      if (instruction < size) next.push_back(block_of[instruction]);
    };
    if (last.flow == Flow::jump || last.flow == Flow::conditional_jump) {
      add(lowered.label_target[static_cast<size_t>(last.in.immediate)]);
    } else if (last.flow == Flow::indexed_jump) {
      for (const uint32_t label : last.list) add(lowered.label_target[label]);
    }
    // A guarded end (@p exit) lets the other lanes go on.
    if (last.flow == Flow::next || last.flow == Flow::conditional_jump ||
        (last.guarded && last.flow == Flow::end)) {
      add(blocks[b].end);
    }
  }
  return blocks;
}

std::vector<Interval> find_intervals(const LoweredFunction& lowered) {
  const size_t registers = lowered.registers.size();
  std::vector<Interval> intervals(registers);
  for (uint32_t r = 0; r < registers; ++r) intervals[r].reg = r;
  const std::vector<BasicBlock> blocks = find_blocks(lowered);
  if (registers * blocks.size() > max_liveness_bits) {
    for (Interval& interval : intervals) {
      interval.begin = 0;
      interval.end = ~0u;
    }
    return intervals;
  }
  const size_t words = (registers + 63) / 64;
  auto bit = [](std::vector<uint64_t>& set, size_t base, uint32_t r) -> std::pair<uint64_t&, uint64_t> {
    return {set[base + r / 64], uint64_t{1} << (r % 64)};
  };
  std::vector<uint64_t> live_in(words * blocks.size()), live_out(words * blocks.size());
  std::vector<uint64_t> gen(words * blocks.size()), kill(words * blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      each_use(lowered.code[i], [&](uint32_t r) {
        auto [killed, mask] = bit(kill, b * words, r);
        if (!(killed & mask)) bit(gen, b * words, r).first |= mask;
      });
      if (lowered.code[i].guarded) continue;  // the other lanes keep the old value
      each_def(lowered.code[i], [&](uint32_t r) {
        auto [killed, mask] = bit(kill, b * words, r);
        killed |= mask;
      });
    }
  }
  // A guarded definition keeps the register alive before it.
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      if (!lowered.code[i].guarded) continue;
      each_def(lowered.code[i], [&](uint32_t r) { bit(gen, b * words, r).first |= uint64_t{1} << (r % 64); });
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks.size(); b-- > 0;) {
      uint64_t* const out = live_out.data() + b * words;
      for (const uint32_t s : blocks[b].successors) {
        for (size_t w = 0; w < words; ++w) out[w] |= live_in[s * words + w];
      }
      for (size_t w = 0; w < words; ++w) {
        const uint64_t in = gen[b * words + w] | (out[w] & ~kill[b * words + w]);
        changed |= in != live_in[b * words + w];
        live_in[b * words + w] = in;
      }
    }
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t rest = live_in[b * words + w]; rest != 0; rest &= rest - 1) {
        intervals[w * 64 + static_cast<size_t>(std::countr_zero(rest))].cover(2 * blocks[b].begin);
      }
      for (uint64_t rest = live_out[b * words + w]; rest != 0; rest &= rest - 1) {
        intervals[w * 64 + static_cast<size_t>(std::countr_zero(rest))].cover(2 * blocks[b].end);
      }
    }
    for (uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      each_use(lowered.code[i], [&](uint32_t r) { intervals[r].cover(2 * i); });
      // Of several destinations none may share with another source or destination: a handler may write
      // the first before it reads the last.
      const bool several = lowered.code[i].defs + lowered.code[i].list_defs > 1;
      each_def(lowered.code[i], [&](uint32_t r) {
        if (several) intervals[r].cover(2 * i);
        intervals[r].cover(2 * i + 1);
      });
    }
  }
  return intervals;
}

void count_straight(const LoweredFunction& lowered, Function& function) {
  function.straight.assign(lowered.code.size(), 0);
  uint32_t ahead = 0;
  for (size_t i = lowered.code.size(); i-- > 0;) {
    const LoweredInstruction& instruction = lowered.code[i];
    const bool ends = instruction.flow != Flow::next || instruction.leaves;
    ahead = instruction.guarded ? 0 : ends ? 1 : std::min(ahead + 1, 0xffffu);
    function.straight[i] = static_cast<uint16_t>(ahead);
  }
}

}  // namespace

void allocate_registers(LoweredFunction& lowered, Function& function) {
  std::vector<Interval> intervals = find_intervals(lowered);
  std::vector<uint32_t> offset(lowered.registers.size(), 0);
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  uint32_t bytes = 0, words32 = 0;
  for (const char size : {'p', 'h', 'w', 'x', 'q'}) {
    const uint32_t slot_bytes = size == 'p' ? 4 : 32 * lane_bytes(size);
    const uint32_t base = (bytes + register_alignment - 1) / register_alignment * register_alignment;
    uint32_t slots = 0;
    std::vector<uint32_t> free;
    using Active = std::pair<uint32_t, uint32_t>;  // end, slot
    std::priority_queue<Active, std::vector<Active>, std::greater<>> active;
    for (const Interval& interval : intervals) {
      if (lowered.registers[interval.reg] != size || !interval.used()) continue;
      while (!active.empty() && active.top().first < interval.begin) {
        free.push_back(active.top().second);
        active.pop();
      }
      uint32_t slot = slots;
      if (free.empty()) {
        ++slots;
      } else {
        slot = free.back();
        free.pop_back();
      }
      active.emplace(interval.end, slot);
      offset[interval.reg] = base + slot * slot_bytes;
    }
    bytes = base + slots * slot_bytes;
    words32 += size == 'h' ? (slots + 1) / 2 : size == 'p' ? 0 : slots * lane_bytes(size) / 4;
  }
  function.registers = words32;
  bytes = (bytes + register_alignment - 1) / register_alignment * register_alignment;
  for (Constant& constant : lowered.constants) {
    constant.offset = bytes;
    bytes += std::max<uint32_t>(register_alignment, 32u * constant.lane_bytes);
  }
  const uint32_t shapes = bytes;
  bytes += memory_operand::shape_bytes * share_address_shapes(lowered);
  function.register_bytes = std::max(bytes, register_alignment);
  function.constants = std::move(lowered.constants);
  for (const Constant& constant : function.constants) {
    if (constant.kind == Constant::Kind::special && changes_with_block(constant.special)) {
      function.block_constants.push_back(constant);
    }
  }

  auto place = [&](uint32_t bits) {
    const Ref ref = Ref::from_bits(bits);
    return ref.is_constant() ? function.constants[ref.index()].offset : offset[ref.index()];
  };
  size_t list_total = 0;
  for (const LoweredInstruction& instruction : lowered.code) list_total += instruction.list.size();
  function.lists.reserve(list_total);  // pointers into it must stay
  function.code.reserve(lowered.code.size());
  for (LoweredInstruction& instruction : lowered.code) {
    Instruction in = instruction.in;
    for (uint32_t k = 0; k < uint32_t{instruction.defs} + instruction.uses; ++k) in.op[k] = place(in.op[k]);
    if (instruction.address >= 0 && in.handler != run_checked && in.op[memory_operand::shape_slot] != 0) {
      in.op[memory_operand::shape_slot] =
          shapes + (in.op[memory_operand::shape_slot] - 1) * memory_operand::shape_bytes;
    }
    if (instruction.flow == Flow::jump || instruction.flow == Flow::conditional_jump) {
      in.immediate = lowered.label_target[static_cast<size_t>(in.immediate)];
    }
    if (!instruction.list.empty()) {
      in.list = function.lists.data() + function.lists.size();
      in.list_size = static_cast<uint16_t>(instruction.list.size());
      for (const uint32_t bits : instruction.list) {
        function.lists.push_back(instruction.flow == Flow::indexed_jump ? lowered.label_target[bits]
                                                                        : place(bits));
      }
    }
    if (instruction.guarded)
      in.guard = (offset[instruction.guard] / 4 + 1) << 1 | (instruction.guard_negated ? 1 : 0);
    function.code.push_back(in);
  }
  count_straight(lowered, function);
}

}  // namespace softgpu
