// Kernels and variables of machine code, as the driver layer wants to know them.
#pragma once

#include <string_view>

#include "softgpu/exec/program/program.h"

namespace nulldriver {

// Adds to `program`; the architecture of the code. Throws softgpu::CompileError when it is no cubin.
int describe_cubin(std::string_view cubin, softgpu::ProgramParts& program);

}  // namespace nulldriver
