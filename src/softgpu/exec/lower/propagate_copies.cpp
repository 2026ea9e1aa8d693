// PTX is full of copies: of special registers, parameters, addresses changed from one space to the same
// space. A register that is written once, by a copy of something that never changes, needs no existence
// of its own: its readers read the original.
//
// Registers count as unchanging when their only definition is unguarded and stands before the first label
// and the first branch, so that it runs once, before everything else. (A definition inside a loop would
// not do: a reader may want the value of the round before.)
#include <algorithm>

#include "softgpu/exec/program/lowered.h"

namespace softgpu {

void propagate_copies(LoweredFunction& lowered) {
  const size_t registers = lowered.registers.size();
  std::vector<uint32_t> definitions(registers, 0);
  auto define = [&](uint32_t bits) { ++definitions[Ref::from_bits(bits).index()]; };
  for (const LoweredInstruction& instruction : lowered.code) {
    for (uint32_t k = 0; k < instruction.defs; ++k) define(instruction.in.op[k]);
    for (uint32_t k = 0; k < instruction.list_defs; ++k) define(instruction.list[k]);
  }
  size_t straight = lowered.code.size();
  for (const uint32_t target : lowered.label_target) straight = std::min<size_t>(straight, target);
  std::vector<bool> unchanging(registers, false);
  std::vector<uint32_t> original(registers);
  for (uint32_t r = 0; r < registers; ++r) original[r] = Ref::reg(r).bits();
  auto resolve = [&](uint32_t bits) {
    const Ref ref = Ref::from_bits(bits);
    return ref.is_constant() ? bits : original[ref.index()];
  };

  std::vector<LoweredInstruction> kept;
  kept.reserve(lowered.code.size());
  std::vector<uint32_t> new_position(lowered.code.size() + 1);
  for (size_t i = 0; i < lowered.code.size(); ++i) {
    new_position[i] = static_cast<uint32_t>(kept.size());
    LoweredInstruction& instruction = lowered.code[i];
    if (instruction.flow != Flow::next) straight = std::min(straight, i);
    if (instruction.is_copy && !instruction.guarded) {
      const uint32_t d = Ref::from_bits(instruction.in.op[0]).index();
      const Ref source = Ref::from_bits(resolve(instruction.in.op[1]));
      const bool same_size = source.is_constant() ? lowered.constants[source.index()].lane_bytes ==
                                                        lane_bytes(lowered.registers[d])
                                                  : lowered.registers[source.index()] == lowered.registers[d];
      if (definitions[d] == 1 && same_size && (source.is_constant() || unchanging[source.index()])) {
        original[d] = source.bits();
        continue;
      }
    }
    if (i < straight && !instruction.guarded) {
      auto settle = [&](uint32_t bits) {
        const uint32_t r = Ref::from_bits(bits).index();
        unchanging[r] = definitions[r] == 1;
      };
      for (uint32_t k = 0; k < instruction.defs; ++k) settle(instruction.in.op[k]);
      for (uint32_t k = 0; k < instruction.list_defs; ++k) settle(instruction.list[k]);
    }
    kept.push_back(std::move(instruction));
  }
  new_position.back() = static_cast<uint32_t>(kept.size());
  for (LoweredInstruction& instruction : kept) {
    for (uint32_t k = instruction.defs; k < uint32_t{instruction.defs} + instruction.uses; ++k) {
      instruction.in.op[k] = resolve(instruction.in.op[k]);
    }
    if (instruction.flow == Flow::indexed_jump) continue;
    for (size_t k = instruction.list_defs; k < instruction.list.size(); ++k) {
      instruction.list[k] = resolve(instruction.list[k]);
    }
  }
  for (uint32_t& target : lowered.label_target) target = new_position[target];
  lowered.code = std::move(kept);
}

}  // namespace softgpu
