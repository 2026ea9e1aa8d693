// Unrolled loops read many elements through one register with different offsets. What its lanes look like
// (one behind the other, all the same) has to be found out once, at the first access.
//
// The later accesses stand in the same stretch of code without a label, so that a lane comes to them by the
// first one only, and nothing between writes the register. The first must not be guarded: it always runs.
#include <map>

#include "softgpu/exec/lowered.h"
#include "softgpu/exec/memory_operand.h"

namespace softgpu {

uint32_t share_address_shapes(LoweredFunction& lowered) {
  using memory_operand::kShapeFirst;
  using memory_operand::kShapeSlot;
  struct Place {
    LoweredInstruction* first;
    uint32_t slot = 0;  // from the second access on
  };
  std::vector<bool> is_target(lowered.code.size() + 1, false);
  for (const uint32_t target : lowered.label_target) is_target[target] = true;
  std::map<uint32_t, Place> known;  // by the bits of the address register's Ref
  uint32_t used = 0, most = 0;
  for (size_t i = 0; i < lowered.code.size(); ++i) {
    LoweredInstruction& instruction = lowered.code[i];
    if (is_target[i]) {
      known.clear();
      used = 0;
    }
    if (instruction.address >= 0) {
      const auto found = known.find(instruction.in.op[instruction.address]);
      if (found != known.end()) {
        Place& place = found->second;
        if (place.slot == 0) {
          place.slot = ++used;
          most = std::max(most, used);
          place.first->in.op[kShapeSlot] = place.slot;
          place.first->in.op[kShapeFirst] = 1;
        }
        instruction.in.op[kShapeSlot] = place.slot;
      } else if (!instruction.guarded) {
        known.emplace(instruction.in.op[instruction.address], Place{&instruction});
      }
    }
    for (uint32_t k = 0; k < instruction.defs; ++k) known.erase(instruction.in.op[k]);
    for (uint32_t k = 0; k < instruction.list_defs; ++k) known.erase(instruction.list[k]);
  }
  return most;
}

}  // namespace softgpu
