// Putting kernels and variables without code into a program.
#pragma once

#include "softgpu/exec/program/program.h"

namespace nulldriver {

// Threads of a block under `.maxntid` and `.reqntid`, where given.
std::uint32_t block_limit(const softgpu::Dim3& most, const softgpu::Dim3& required);

// The first of two kernels or variables with one name is the one that counts.
void add_kernel(softgpu::ProgramParts& program, softgpu::KernelInfo info);
void add_global(softgpu::ProgramParts& program, softgpu::GlobalVariable global);

}  // namespace nulldriver
