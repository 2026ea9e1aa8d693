// How long a module image is: the API passes a pointer without a length.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "client/images.h"

namespace gpupool::client {
namespace {

constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::uint32_t fatbin_magic = 0xba55ed50;
constexpr std::size_t max_image = std::size_t{1} << 30;

struct FatbinWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* data;
  const void* filename_or_fatbins;
};

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_size;
  std::uint64_t entries_size;
};

/// Sections that take memory on the device and no bytes of the file: of the standard, and NVIDIA's own types
/// for global, local and shared memory (relocatable machine code has them).
bool has_content(const Elf64_Shdr& section) {
  constexpr std::uint32_t cuda_global = 0x70000007, cuda_local = 0x70000009, cuda_shared = 0x7000000a;
  return section.sh_type != SHT_NOBITS && section.sh_type != cuda_global && section.sh_type != cuda_local &&
         section.sh_type != cuda_shared;
}

std::size_t elf_size(const unsigned char* start) {
  Elf64_Ehdr header;
  std::memcpy(&header, start, sizeof(header));
  std::uint64_t end = sizeof(header);
  end = std::max<std::uint64_t>(end, header.e_shoff + std::uint64_t{header.e_shentsize} * header.e_shnum);
  end = std::max<std::uint64_t>(end, header.e_phoff + std::uint64_t{header.e_phentsize} * header.e_phnum);
  for (unsigned n = 0; n < header.e_shnum && header.e_shentsize >= sizeof(Elf64_Shdr); ++n) {
    Elf64_Shdr section;
    std::memcpy(&section, start + header.e_shoff + std::uint64_t{n} * header.e_shentsize, sizeof(section));
    if (has_content(section)) end = std::max<std::uint64_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

}  // namespace

CUresult image_size(const void*& start, std::size_t& size) {
  if (start == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t magic = 0;
  std::memcpy(&magic, start, sizeof(magic));
  if (magic == wrapper_magic) {
    FatbinWrapper wrapper;
    std::memcpy(&wrapper, start, sizeof(wrapper));
    if (wrapper.data == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    start = wrapper.data;
    std::memcpy(&magic, start, sizeof(magic));
  }
  if (magic == fatbin_magic) {
    FatbinHeader header;
    std::memcpy(&header, start, sizeof(header));
    if (header.entries_size > max_image) return CUDA_ERROR_INVALID_IMAGE;
    size = header.header_size + header.entries_size;
  } else if (std::memcmp(start, ELFMAG, SELFMAG) == 0) {
    size = elf_size(static_cast<const unsigned char*>(start));
  } else {
    size = strnlen(static_cast<const char*>(start), max_image);
  }
  return size == 0 || size >= max_image ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

}  // namespace gpupool::client
