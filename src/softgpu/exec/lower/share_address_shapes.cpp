// Unrolled loops read many elements through one register with different offsets. The shape of its lanes
// (one behind the other, all the same) has to be found out once, at the first access.
//
// The later accesses stand in the same stretch of code without a label, so that a lane comes to them by the
// first one only, and nothing between writes the register. The first must be one that always works the shape
// out: not guarded, of one element, and neither in local memory nor at a constant address, which the handlers
// do not look at by rows.
#include <map>
#include <utility>

#include "softgpu/exec/program/checked_access.h"
#include "softgpu/exec/program/lowered.h"
#include "softgpu/exec/program/memory_operand.h"

namespace softgpu {

namespace {

bool goes_by_rows(const LoweredInstruction& instruction) {
  return instruction.address >= 0 && instruction.in.handler != run_checked &&
         !(instruction.in.aux & memory_operand::no_base) &&
         (instruction.in.aux & memory_operand::space_mask) != memory_operand::local;
}

// One register may hold addresses of two spaces, of which each has shapes of its own.
std::pair<uint32_t, uint32_t> key_of(const LoweredInstruction& instruction) {
  return {instruction.in.op[instruction.address],
          instruction.in.aux & (memory_operand::space_mask | memory_operand::address32)};
}

}  // namespace

uint32_t share_address_shapes(LoweredFunction& lowered) {
  using memory_operand::shape_first;
  using memory_operand::shape_slot;
  struct Place {
    LoweredInstruction* first;
    uint32_t slot = 0;  // from the second access on
  };
  std::vector<bool> is_target(lowered.code.size() + 1, false);
  for (const uint32_t target : lowered.label_target) is_target[target] = true;
  std::map<std::pair<uint32_t, uint32_t>, Place>
      known;  // by the bits of the address register's Ref, and space
  const auto forget = [&](uint32_t ref) {
    known.erase(known.lower_bound({ref, 0}), known.upper_bound({ref, ~0u}));
  };
  uint32_t used = 0, most = 0;
  for (size_t i = 0; i < lowered.code.size(); ++i) {
    LoweredInstruction& instruction = lowered.code[i];
    if (is_target[i]) {
      known.clear();
      used = 0;
    }
    if (goes_by_rows(instruction)) {
      const auto found = known.find(key_of(instruction));
      if (found != known.end()) {
        Place& place = found->second;
        if (place.slot == 0) {
          place.slot = ++used;
          most = std::max(most, used);
          place.first->in.op[shape_slot] = place.slot;
          place.first->in.op[shape_first] = 1;
        }
        instruction.in.op[shape_slot] = place.slot;
      } else if (!instruction.guarded && instruction.list.empty()) {
        known.emplace(key_of(instruction), Place{&instruction});
      }
    }
    for (uint32_t k = 0; k < instruction.defs; ++k) forget(instruction.in.op[k]);
    for (uint32_t k = 0; k < instruction.list_defs; ++k) forget(instruction.list[k]);
  }
  return most;
}

}  // namespace softgpu
