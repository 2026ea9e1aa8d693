#include "image/elf_size.h"

#include <algorithm>
#include <cstring>

#include "image/elf_sections.h"

namespace gpupool::image {

std::size_t elf_size(const void* start) {
  const auto* const bytes = static_cast<const unsigned char*>(start);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof(header));
  std::uint64_t end = sizeof(header);
  // What is empty reaches nowhere, whatever its offset says.
  const auto reach = [&](std::uint64_t offset, std::uint64_t size) {
    if (size != 0) end = std::max(end, offset + size);
  };
  reach(header.e_phoff, std::uint64_t{header.e_phentsize} * header.e_phnum);
  if (header.e_shoff == 0 || header.e_shentsize < sizeof(Elf64_Shdr)) return end;
  Elf64_Shdr section;
  std::memcpy(&section, bytes + header.e_shoff, sizeof(section));
  // A count that does not fit the header stands in the first section.
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : section.sh_size;
  reach(header.e_shoff, count * header.e_shentsize);
  for (std::uint64_t n = 1; n < count; ++n) {
    std::memcpy(&section, bytes + header.e_shoff + n * header.e_shentsize, sizeof(section));
    if (section.sh_type != SHT_NULL && has_content(section)) reach(section.sh_offset, section.sh_size);
  }
  return end;
}

}  // namespace gpupool::image
