#include "softgpu/null/describe_cubin.h"

#include <algorithm>

#include "image/cubin.h"
#include "softgpu/null/program_parts.h"
#include "softgpu/ptx/error.h"

namespace nulldriver {
namespace {

using softgpu::Dim3;

Dim3 dimensions(const std::uint32_t (&block)[3]) {
  return {block[0], block[1], block[2]};
}

// What the registers of one block allow: they are handed out in eights, and whole warps at a time.
std::uint32_t threads_for(std::uint32_t registers) {
  const std::uint32_t per_thread = (std::max(registers, 1u) + 7) / 8 * 8;
  return std::min(1024u, 65536 / per_thread / 32 * 32);
}

}  // namespace

int describe_cubin(std::string_view bytes, softgpu::ProgramParts& program) {
  const auto cubin = gpupool::image::read_cubin(std::as_bytes(std::span(bytes)));
  if (!cubin) softgpu::syntax_error(0, "the machine code is not a well-formed ELF file");
  for (const auto& kernel : cubin->kernels) {
    softgpu::KernelInfo info;
    info.name = kernel.name;
    for (const auto& parameter : kernel.parameters)
      info.parameters.push_back({parameter.offset, parameter.size});
    info.parameter_bytes = kernel.parameter_bytes;
    info.static_shared_bytes = kernel.shared_bytes;
    info.local_bytes = kernel.local_bytes;
    info.registers = kernel.registers;
    info.required_block = dimensions(kernel.required_block);
    info.max_threads_per_block = std::min(threads_for(kernel.registers),
                                          block_limit(dimensions(kernel.max_block), info.required_block));
    add_kernel(program, std::move(info));
  }
  for (const auto& variable : cubin->variables) {
    softgpu::GlobalVariable global;
    global.info = {variable.name, variable.size, variable.alignment, variable.is_constant};
    global.initial.assign(variable.initial.begin(), variable.initial.end());
    add_global(program, std::move(global));
  }
  return static_cast<int>(cubin->architecture);
}

}  // namespace nulldriver
