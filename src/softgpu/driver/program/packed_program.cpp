#include "softgpu/driver/program/packed_program.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/device/driver.h"

namespace softgpu::driver {
namespace {

// Frameworks ask again and again; people need to be told once.
void say_once(const std::string& line) {
  struct Said {
    gpupool::Mutex mutex;
    std::set<std::string> lines GUARDED_BY(mutex);
  };
  static auto* const said = new Said;  // used while the process ends
  const gpupool::MutexLock lock(said->mutex);
  if (said->lines.insert(line).second)
    std::fprintf(stderr, "%s: %s\n", driver_identity.log_name, line.c_str());
}

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

}  // namespace

LoadedProgram load_program(const void* image, std::optional<std::size_t> size, int capability,
                           const JitOptions& options) {
  try {
    return compile_program(read_image(image, size, capability), capability, options);
  } catch (const Error& error) {
    if (error.code() != CUDA_ERROR_NO_BINARY_FOR_GPU) throw;
  }
  const auto packed = require_packed(image, size, options);
  std::vector<std::size_t> frames(packed.kernels->frames().size());
  std::iota(frames.begin(), frames.end(), std::size_t{0});
  return compile_packed(packed, frames, capability);
}

softgpu::packs::PackedImage require_packed(const void* image, std::optional<std::size_t> size,
                                           const JitOptions& options) {
  // A driver that takes machine code has none that fits: a pack would not run either.
  require(!driver_identity.takes_machine_code, CUDA_ERROR_NO_BINARY_FOR_GPU);
  const auto fat_binary = fat_binary_of(image, size);
  require(fat_binary.has_value(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  auto found = softgpu::packs::find_packed(*fat_binary, Driver::get().settings.kernel_packs);
  if (found.kernels) return found;
  options.write_error_log(found.problem);
  say_once("this image cannot be loaded: " + found.problem);
  fail(CUDA_ERROR_NO_BINARY_FOR_GPU);
}

LoadedProgram compile_packed(const softgpu::packs::PackedImage& image, const std::vector<std::size_t>& frames,
                             int capability) {
  ImageSource source;
  for (const std::size_t frame : frames) {
    source.texts.push_back(image.kernels->ptx(frame));
    if (!source.texts.back().empty()) continue;
    say_once("the kernel pack's file " + image.kernels->path() + " is damaged: gpupool kernel-packs verify");
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
  LoadedProgram loaded = compile_program(source, capability, JitOptions());
  for (const softgpu::KernelInfo& kernel : loaded.program->kernels()) {
    const auto expected =
        std::ranges::find(image.machine_code.kernels, kernel.name, &gpupool::image::CubinKernel::name);
    if (expected == image.machine_code.kernels.end() || same_layout(kernel, *expected)) continue;
    say_once("the kernel pack was made from other sources than the program: " + demangled(kernel.name) +
             " takes other parameters (gpupool kernel-packs verify)");
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
  return loaded;
}

void say_missing_kernel(std::string_view name) {
  say_once("no kernel pack has PTX for " + demangled(name));
}

}  // namespace softgpu::driver
