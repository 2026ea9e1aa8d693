// Facts about CUDA's ELF files that every reader of images needs.
#pragma once

#include <elf.h>

#include <cstdint>

namespace gpupool::image {

inline constexpr std::uint16_t machine_cuda = 190;  // EM_CUDA, which not every elf.h has

/// Whether a section's content stands in the file. Without are those that only take memory on the device: the
/// standard's type for that, and NVIDIA's own for global, local and shared memory (relocatable code has
/// them).
inline bool has_content(const Elf64_Shdr& section) {
  constexpr std::uint32_t cuda_global = 0x70000007, cuda_local = 0x70000009, cuda_shared = 0x7000000a;
  switch (section.sh_type) {
    case SHT_NOBITS:
    case cuda_global:
    case cuda_local:
    case cuda_shared:
      return false;
    default:
      return true;
  }
}

}  // namespace gpupool::image
