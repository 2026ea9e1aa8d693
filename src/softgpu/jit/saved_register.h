// Registers between compiled code and the interpreter. Compiled code keeps vectors at home, in the warp's
// register file; scalars and predicates it puts on a stage, one place each, and they are spread to the lanes
// only when the interpreter goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softgpu/jit/value.h"

namespace softgpu::jit {

struct SavedRegister {
  char size = 'w';
  bool scalar = false;
  uint32_t home = 0, stage = 0;  // byte offsets
  std::shared_ptr<const Offsets> offsets;
};

// From the stage to the home, for those lanes.
void bring_home(std::byte* registers, const SavedRegister& saved, uint32_t lanes);
// From the home to the stage; false if those lanes do not agree on a scalar.
[[nodiscard]] bool put_on_stage(std::byte* registers, const SavedRegister& saved, uint32_t lanes);

}  // namespace softgpu::jit
