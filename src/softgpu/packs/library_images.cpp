#include "softgpu/packs/library_images.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/sha256.h"
#include "image/fatbin.h"

namespace softgpu::packs {
namespace {

using Bytes = std::span<const std::byte>;

template <class T>
bool read(Bytes bytes, std::uint64_t at, T& out) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return false;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return true;
}

Bytes content(Bytes library, const Elf64_Shdr& section) {
  if (section.sh_type == SHT_NOBITS || section.sh_offset > library.size() ||
      section.sh_size > library.size() - section.sh_offset)
    return {};
  return library.subspan(section.sh_offset, section.sh_size);
}

std::string_view name_at(Bytes names, std::uint64_t at) {
  if (at >= names.size()) return {};
  const auto* const text = reinterpret_cast<const char*>(names.data()) + at;
  return {text, strnlen(text, names.size() - at)};
}

std::string build_id(Bytes note) {
  Elf64_Nhdr header;
  if (!read(note, 0, header) || header.n_type != NT_GNU_BUILD_ID) return {};
  const std::uint64_t at = sizeof(header) + (std::uint64_t{header.n_namesz} + 3) / 4 * 4;
  if (at > note.size() || header.n_descsz > note.size() - at) return {};
  return gpupool::hex(note.subspan(at, header.n_descsz));
}

void add_fat_binaries(Bytes section, std::vector<Bytes>& to) {
  constexpr std::size_t alignment = 8;
  for (std::size_t at = 0; at + 16 <= section.size();) {
    const auto size = gpupool::image::fatbin_size(section.subspan(at));
    if (!size || *size > section.size() - at) {
      at += alignment;
      continue;
    }
    to.push_back(section.subspan(at, *size));
    at += (*size + alignment - 1) / alignment * alignment;
  }
}

}  // namespace

std::optional<LibraryImages> find_images(Bytes library) {
  Elf64_Ehdr header;
  if (!read(library, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  const auto section_at = [&](std::uint64_t index, Elf64_Shdr& section) {
    return index < header.e_shnum && header.e_shoff < library.size() &&
           read(library, header.e_shoff + index * sizeof(section), section);
  };
  Elf64_Shdr names_section;
  if (!section_at(header.e_shstrndx, names_section)) return std::nullopt;
  const Bytes names = content(library, names_section);
  LibraryImages found;
  for (std::uint64_t index = 0; index < header.e_shnum; ++index) {
    Elf64_Shdr section;
    if (!section_at(index, section)) return std::nullopt;
    const std::string_view name = name_at(names, section.sh_name);
    if (name == ".nv_fatbin") add_fat_binaries(content(library, section), found.fat_binaries);
    if (name == "__nv_relfatbin") add_fat_binaries(content(library, section), found.parts);
    if (name == ".note.gnu.build-id") found.build_id = build_id(content(library, section));
  }
  return found;
}

}  // namespace softgpu::packs
