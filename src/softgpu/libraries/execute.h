// Operations of math libraries (src/libraries/operations), computed by the CPU.
#pragma once

#include "softgpu/exec/program/engine.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

/// Does a part of the operation that the kernel's name says. Throws nothing.
softgpu::OperationEnd execute(const softgpu::OperationPart& part, const Memory& memory);

}  // namespace softgpu::libraries
