#include "softgpu/driver/program/loader.h"

#include <string_view>
#include <utility>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/driver.h"

namespace softgpu::driver {

LoadedProgram compile_program(const ImageSource& source, int capability, const JitOptions& options) {
  const std::vector<std::string_view> views(source.texts.begin(), source.texts.end());
  softgpu::CompileResult result = softgpu::compile(views, Driver::get().settings.checks,
                                                   options.fuses_products() && source.fuses_products);
  if (result.status != softgpu::CompileStatus::ok) {
    fail(CUDA_ERROR_INVALID_PTX, std::move(result.log));
  }
  if (result.target > capability) {
    fail(CUDA_ERROR_INVALID_PTX, "PTX for sm_" + std::to_string(result.target) +
                                     " does not run on a device of sm_" + std::to_string(capability));
  }
  options.write_info_log(result.log);
  options.write_error_log("");
  const int registers = options.max_registers() ? options.max_registers() : source.max_registers;
  LoadedProgram loaded{std::move(result.program), result.ptx_version, result.target, 0, registers, 0, {}};
  for (const softgpu::GlobalInfo& global : loaded.program->globals()) {
    if (global.is_constant) loaded.constant_bytes += global.size;
  }
  return loaded;
}

}  // namespace softgpu::driver
