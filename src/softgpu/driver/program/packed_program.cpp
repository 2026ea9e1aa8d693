#include "softgpu/driver/program/packed_program.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/fault_report.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/packs/stand_in.h"

namespace softgpu::driver {
namespace {

std::string demangled(std::string_view name) {
  const std::string text(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && plain ? plain.get() : text;
}

bool same_layout(const softgpu::KernelInfo& kernel, const gpupool::image::CubinKernel& machine_code) {
  return std::ranges::equal(kernel.parameters, machine_code.parameters,
                            [](const auto& one, const auto& other) {
                              return one.offset == other.offset && one.size == other.size;
                            });
}

std::string text_of(const softgpu::packs::KernelFile& file, std::size_t frame) {
  std::string text = file.ptx(frame);
  if (text.empty()) {
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU,
         "the kernel pack's file " + file.path() + " is damaged; see gpupool kernel-packs verify");
  }
  return text;
}

}  // namespace

std::variant<ImageSource, softgpu::packs::PackedImage> read_or_find(const void* image,
                                                                    std::optional<std::size_t> size,
                                                                    int capability) {
  try {
    return read_image(image, size, capability);
  } catch (const Error& error) {
    // A driver that takes machine code has none that fits: a pack would not run either.
    if (error.code() != CUDA_ERROR_NO_BINARY_FOR_GPU || driver_identity.takes_machine_code) throw;
    const auto fat_binary = fat_binary_of(image, size);
    if (!fat_binary) throw;
    auto found = softgpu::packs::find_packed(*fat_binary, Driver::get().settings.kernel_packs);
    if (!found.kernels) found.problem = error.detail() + ": " + found.problem;
    return found;
  }
}

LoadedProgram compile_packed(const softgpu::packs::PackedImage& image, int capability,
                             std::optional<std::size_t> frame) {
  const auto& file = *image.kernels;
  ImageSource source;
  const std::size_t first = frame.value_or(0);
  const std::size_t end = frame ? *frame + 1 : file.frames().size();
  for (std::size_t each = first; each < end; ++each) source.texts.push_back(text_of(file, each));
  LoadedProgram loaded = compile_program(source, capability, JitOptions());
  for (const softgpu::KernelInfo& kernel : loaded.program->kernels()) {
    const auto expected =
        std::ranges::find(image.machine_code.kernels, kernel.name, &gpupool::image::CubinKernel::name);
    if (expected == image.machine_code.kernels.end() || same_layout(kernel, *expected)) continue;
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "the kernel pack was made from other sources than the program: " +
                                           demangled(kernel.name) + " takes other parameters");
  }
  return loaded;
}

std::optional<LoadedProgram> stand_ins(const softgpu::packs::PackedImage& image,
                                       const std::set<std::string, std::less<>>& names, int capability) {
  const auto& machine_code = image.machine_code;
  if (static_cast<int>(machine_code.architecture) > capability) return std::nullopt;
  std::vector<const gpupool::image::CubinKernel*> kernels;
  for (const auto& kernel : machine_code.kernels) {
    if (names.contains(kernel.name)) kernels.push_back(&kernel);
  }
  ImageSource source;
  source.texts.push_back(softgpu::packs::stand_in(kernels));
  if (source.texts.front().empty()) return std::nullopt;
  LoadedProgram made = compile_program(source, capability, JitOptions());
  // A program chooses among its kernels by what they were compiled for.
  made.target = made.machine_code = static_cast<int>(machine_code.architecture);
  made.without_code = image.problem.empty() ? "no kernel pack has PTX for it" : image.problem;
  return made;
}

void require_code(const Function& function) {
  const std::string& why = function.module().program().without_code;
  if (why.empty()) return;
  const std::string detail = demangled(function.info().name) + ": " + why;
  report_refused_image(CUDA_ERROR_NO_BINARY_FOR_GPU, detail);
  fail(CUDA_ERROR_NO_BINARY_FOR_GPU, detail);
}

}  // namespace softgpu::driver
