// Kernels and variables of PTX text, as the driver layer wants to know them.
#pragma once

#include <string_view>

#include "softgpu/exec/program/program.h"

namespace nulldriver {

struct PtxHeader {
  int version = 0;  // e.g. 94
  int target = 0;   // e.g. 120
};

// Adds to `program`. The meaning of instructions is not looked at: any opcode is taken. Throws
// softgpu::CompileError for what does not parse.
PtxHeader describe_ptx(std::string_view text, softgpu::ProgramParts& program);

}  // namespace nulldriver
