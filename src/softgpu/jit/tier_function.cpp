#include "softgpu/jit/tier_function.h"

#include <algorithm>

#include "softgpu/exec/run/warp.h"

namespace softgpu::jit {

TierFunction::TierFunction(const LoweredFunction& lowered, const Function& original) {
  constexpr uint32_t place_alignment = 64;
  function.name = original.name;
  function.is_entry = original.is_entry;
  function.call_sites = original.call_sites;
  function.local_bytes = original.local_bytes;
  function.local_alignment = original.local_alignment;
  function.registers = original.registers;
  function.reached = original.reached;
  uint32_t bytes = 0;
  auto reserve = [&](uint32_t size) {
    const uint32_t at = (bytes + place_alignment - 1) / place_alignment * place_alignment;
    bytes = at + size;
    return at;
  };
  // Predicates together: one word each.
  home.assign(lowered.registers.size(), 0);
  for (size_t r = 0; r < home.size(); ++r) {
    if (lowered.registers[r] != 'p') continue;
    home[r] = bytes;
    bytes += 4;
  }
  for (size_t r = 0; r < home.size(); ++r) {
    if (lowered.registers[r] != 'p') home[r] = reserve(warp_lanes * lane_bytes(lowered.registers[r]));
  }
  const uint32_t stages = reserve(static_cast<uint32_t>(8 * home.size()));
  for (size_t r = 0; r < home.size(); ++r) stage.push_back(stages + static_cast<uint32_t>(8 * r));
  function.constants = lowered.constants;
  for (Constant& constant : function.constants) constant.offset = reserve(warp_lanes * constant.lane_bytes);
  for (const Constant& constant : function.constants) {
    if (constant.kind == Constant::Kind::special && changes_with_block(constant.special))
      function.block_constants.push_back(constant);
  }
  size_t longest = 0, total = 0;
  for (const LoweredInstruction& instruction : lowered.code) {
    longest = std::max(longest, instruction.list.size());
    total += instruction.list.size();
  }
  scratch = reserve(static_cast<uint32_t>((operand_places + longest) * place_bytes));
  function.register_bytes =
      (std::max(bytes, place_alignment) + place_alignment - 1) / place_alignment * place_alignment;

  function.lists.reserve(total);  // pointers into them must stay
  call_lists_.reserve(total);
  auto at_home = [&](uint32_t bits) {
    const Ref ref = Ref::from_bits(bits);
    return ref.is_constant() ? function.constants[ref.index()].offset : home[ref.index()];
  };
  for (const LoweredInstruction& instruction : lowered.code) {
    Instruction in = instruction.in;
    const uint32_t operands = uint32_t{instruction.defs} + instruction.uses;
    for (uint32_t k = 0; k < operands; ++k) in.op[k] = at_home(in.op[k]);
    if (instruction.flow == Flow::jump || instruction.flow == Flow::conditional_jump)
      in.immediate = lowered.label_target[static_cast<size_t>(in.immediate)];
    Instruction call = in;
    // Registers of 128 bits are always at home.
    auto is_wide = [&](uint32_t bits) {
      const Ref ref = Ref::from_bits(bits);
      return ref.is_constant() ? lowered.constants[ref.index()].lane_bytes == 16
                               : lowered.registers[ref.index()] == 'q';
    };
    for (uint32_t k = 0; k < operands; ++k) {
      if (!is_wide(instruction.in.op[k])) call.op[k] = operand_place(k);
    }
    if (!instruction.list.empty()) {
      in.list = function.lists.data() + function.lists.size();
      call.list = call_lists_.data() + call_lists_.size();
      in.list_size = call.list_size = static_cast<uint16_t>(instruction.list.size());
      for (uint32_t k = 0; k < instruction.list.size(); ++k) {
        const bool jumps = instruction.flow == Flow::indexed_jump;
        function.lists.push_back(jumps ? lowered.label_target[instruction.list[k]]
                                       : at_home(instruction.list[k]));
        call_lists_.push_back(!jumps && is_wide(instruction.list[k]) ? at_home(instruction.list[k])
                                                                     : list_place(k));
      }
    }
    if (instruction.guarded)
      in.guard = (home[instruction.guard] / 4 + 1) << 1 | (instruction.guard_negated ? 1 : 0);
    function.code.push_back(in);
    calls.push_back(call);
  }
}

}  // namespace softgpu::jit
