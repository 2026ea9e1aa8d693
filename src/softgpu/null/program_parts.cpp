#include "softgpu/null/program_parts.h"

#include <algorithm>

namespace nulldriver {

std::uint32_t block_limit(const softgpu::Dim3& most, const softgpu::Dim3& required) {
  std::uint64_t threads = 1024;
  for (const auto& block : {most, required}) {
    if (block.x != 0) threads = std::min(threads, std::uint64_t{block.x} * block.y * block.z);
  }
  return static_cast<std::uint32_t>(threads);
}

void add_kernel(softgpu::ProgramParts& program, softgpu::KernelInfo info) {
  if (!program.kernel_by_name.emplace(info.name, program.kernels.size()).second) return;
  program.kernels.emplace_back();
  program.kernel_infos.push_back(std::move(info));
}

void add_global(softgpu::ProgramParts& program, softgpu::GlobalVariable global) {
  if (!program.global_by_name.emplace(global.info.name, program.globals.size()).second) return;
  program.visible_globals.push_back(global.info);
  program.globals.push_back(std::move(global));
}

}  // namespace nulldriver
