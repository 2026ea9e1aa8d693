#include "softgpu/driver/program/linked_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "image/elf_sections.h"
#include "softgpu/driver/base/error.h"

namespace softgpu::driver {
namespace {

// Types in the range that the ELF standard leaves to applications.
constexpr std::uint32_t ptx_section_type = SHT_LOUSER + 0x5350545;
constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t max_offset = std::uint64_t{1} << 40;
constexpr unsigned max_texts = 4096;
constexpr std::uint32_t max_register_limit = 65536;
constexpr std::uint32_t rounds_twice = 1U << 31;  // in the flags, beside the limit of registers

/// The image's bytes; with a size, never those beyond it.
class Bytes {
 public:
  Bytes(const void* start, std::optional<std::size_t> size)
      : start_(static_cast<const char*>(start)), size_(size) {}

  bool holds(std::uint64_t offset, std::uint64_t length) const {
    if (offset > max_offset || length > max_text_bytes) return false;
    return !size_ || (offset <= *size_ && length <= *size_ - offset);
  }

  template <typename T>
  std::optional<T> read(std::uint64_t offset) const {
    if (!holds(offset, sizeof(T))) return std::nullopt;
    T value;
    std::memcpy(&value, start_ + offset, sizeof value);
    return value;
  }

  std::string text(std::uint64_t offset, std::uint64_t length) const { return {start_ + offset, length}; }

 private:
  const char* start_;
  std::optional<std::size_t> size_;
};

}  // namespace

std::string pack_linked_image(const ImageSource& source) {
  require(source.texts.size() <= max_texts, CUDA_ERROR_OUT_OF_MEMORY);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = gpupool::image::machine_cuda;
  header.e_version = EV_CURRENT;
  header.e_flags =
      static_cast<std::uint32_t>(source.max_registers) | (source.fuses_products ? 0 : rounds_twice);
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<std::uint16_t>(source.texts.size() + 1);  // the first section is no section
  std::string packed(sizeof header, '\0');
  std::vector<Elf64_Shdr> sections(1);
  for (const std::string& text : source.texts) {
    Elf64_Shdr section{};
    section.sh_type = ptx_section_type;
    section.sh_offset = packed.size();
    section.sh_size = text.size();
    sections.push_back(section);
    packed += text;
  }
  packed.resize((packed.size() + 7) / 8 * 8);
  header.e_shoff = packed.size();
  packed.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Elf64_Shdr));
  std::memcpy(packed.data(), &header, sizeof header);
  return packed;
}

std::optional<ImageSource> read_linked_image(const void* image, std::optional<std::size_t> size) {
  const Bytes bytes(image, size);
  // Byte by byte: an image whose size nobody told may be shorter than a header if it is no ELF file.
  constexpr unsigned char identification[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                              ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  for (std::size_t n = 0; n < sizeof identification; ++n) {
    if (bytes.read<unsigned char>(n) != identification[n]) return std::nullopt;
  }
  const auto header = bytes.read<Elf64_Ehdr>(0);
  if (!header || header->e_machine != gpupool::image::machine_cuda ||
      header->e_shentsize != sizeof(Elf64_Shdr)) {
    return std::nullopt;
  }
  ImageSource source;
  for (unsigned n = 1; n < header->e_shnum; ++n) {
    const auto section = bytes.read<Elf64_Shdr>(header->e_shoff + std::uint64_t{n} * sizeof(Elf64_Shdr));
    require(section.has_value(), CUDA_ERROR_INVALID_IMAGE);
    if (section->sh_type != ptx_section_type) return std::nullopt;
    require(n <= max_texts && bytes.holds(section->sh_offset, section->sh_size), CUDA_ERROR_INVALID_IMAGE);
    source.texts.push_back(bytes.text(section->sh_offset, section->sh_size));
  }
  if (source.texts.empty()) return std::nullopt;
  const std::uint32_t limit = header->e_flags & ~rounds_twice;
  require(limit <= max_register_limit, CUDA_ERROR_INVALID_IMAGE);
  source.max_registers = static_cast<int>(limit);
  source.fuses_products = (header->e_flags & rounds_twice) == 0;
  return source;
}

}  // namespace softgpu::driver
