// From an image to a program. Each driver that is built from these sources has its own way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "softgpu/driver/program/image_source.h"
#include "softgpu/driver/program/jit_options.h"
#include "softgpu/exec/program/engine.h"

namespace softgpu::driver {

struct LoadedProgram {
  std::shared_ptr<const softgpu::Program> program;
  int ptx_version = 0;    // e.g. 94
  int target = 0;         // e.g. 120
  int machine_code = 0;   // architecture of the code, e.g. 120; 0: compiled for the device
  int max_registers = 0;  // limit asked for when compiling or linking; 0: none
  std::size_t constant_bytes = 0;
};

// Throws Error(INVALID_PTX) after filling the error log; an unsupported opcode is named on stderr as well.
LoadedProgram compile_program(const ImageSource& source, int capability, const JitOptions& options);

}  // namespace softgpu::driver
