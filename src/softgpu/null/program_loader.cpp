// Programs without code: what can be asked of a module is there, and nothing can be run.
#include "softgpu/driver/program/loader.h"

#include <elf.h>

#include <algorithm>

#include "softgpu/driver/base/error.h"
#include "softgpu/null/describe_cubin.h"
#include "softgpu/null/describe_ptx.h"
#include "softgpu/ptx/error.h"

namespace softgpu::driver {

LoadedProgram compile_program(const ImageSource& source, int capability, const JitOptions& options) {
  auto parts = std::make_unique<ProgramParts>();
  LoadedProgram loaded;
  bool is_machine_code = false;
  try {
    for (const std::string& text : source.texts) {
      is_machine_code = text.starts_with(ELFMAG);
      if (is_machine_code) {
        loaded.machine_code = std::max(loaded.machine_code, nulldriver::describe_cubin(text, *parts));
        loaded.target = std::max(loaded.target, loaded.machine_code);
      } else {
        const auto header = nulldriver::describe_ptx(text, *parts);
        loaded.ptx_version = std::max(loaded.ptx_version, header.version);
        loaded.target = std::max(loaded.target, header.target);
      }
    }
  } catch (const CompileError& error) {
    fail(is_machine_code ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_PTX,
         "line " + std::to_string(error.line) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (loaded.target > capability) {
    fail(CUDA_ERROR_INVALID_PTX, "PTX for sm_" + std::to_string(loaded.target) +
                                     " does not run on a device of sm_" + std::to_string(capability));
  }
  options.write_info_log("");
  options.write_error_log("");
  loaded.max_registers = options.max_registers() ? options.max_registers() : source.max_registers;
  loaded.program = std::make_shared<const Program>(std::move(parts));
  for (const GlobalInfo& global : loaded.program->globals()) {
    if (global.is_constant) loaded.constant_bytes += global.size;
  }
  return loaded;
}

}  // namespace softgpu::driver
