// From an image to a program. Each driver that is built from these sources has its own way.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
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
  // Why its kernels can be asked about but not launched; empty for a program with code.
  std::string without_code;
};

// What programs call by the two functions below.
LoadedProgram compile_program(const ImageSource& source, int capability, const JitOptions& options);

// The program of an image. An error fills the caller's logs, and is told on standard error and in cuLogs*:
// most programs pass no log, and the number alone says nothing.
LoadedProgram load_program(const void* image, std::optional<std::size_t> size, int capability,
                           const JitOptions& options);
// Runs `body` so that an error of it is told like that.
void telling(const JitOptions& options, const std::function<void()>& body);

}  // namespace softgpu::driver
