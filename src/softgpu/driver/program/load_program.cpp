// From an image to a program, with a word where that fails.
#include <variant>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/fault_report.h"
#include "softgpu/driver/program/loader.h"
#include "softgpu/driver/program/packed_program.h"

namespace softgpu::driver {

void telling(const JitOptions& options, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    options.write_error_log(error.detail());
    options.write_info_log("");
    if (!error.detail().empty()) report_refused_image(error.code(), error.detail());
    throw;
  }
}

LoadedProgram load_program(const void* image, std::optional<std::size_t> size, int capability,
                           const JitOptions& options) {
  LoadedProgram loaded;
  telling(options, [&] {
    auto read = read_or_find(image, size, capability);
    if (const auto* const source = std::get_if<ImageSource>(&read)) {
      loaded = compile_program(*source, capability, options);
    } else {
      const auto& packed = std::get<softgpu::packs::PackedImage>(read);
      if (!packed.kernels) fail(CUDA_ERROR_NO_BINARY_FOR_GPU, packed.problem);
      loaded = compile_packed(packed, capability);
    }
  });
  return loaded;
}

}  // namespace softgpu::driver
