// What a kernel needs of a launch, found from all functions that it may reach.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "softgpu/exec/lower/lowering.h"

namespace softgpu {

// A function of the linked program, and what lowering found in it.
struct PlacedFunction {
  size_t module;
  const ptx::Function* syntax;
  FunctionSignature signature;
  std::vector<uint32_t> calls, shared;
  bool indirect = false, dynamic_shared = false, grid_sync = false;
};

// Makes the kernel that begins at `entry`, when all functions are lowered. A call through a pointer may reach
// each of `address_taken`.
void add_kernel(ProgramParts& parts, std::span<const PlacedFunction> functions,
                const std::set<uint32_t>& address_taken, uint32_t entry);

}  // namespace softgpu
