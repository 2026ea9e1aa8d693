#include "worker/objects/image_check.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "image/elf_sections.h"

namespace gpupool::worker {
namespace {

using image::has_content;

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t fatbin_magic = 0xba55ed50;
constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::string_view archive_magic = "!<arch>\n";
constexpr std::uint64_t max_unpacked = std::uint64_t{1} << 30;

/// False when the field does not lie inside.
template <class T>
bool read(Bytes bytes, std::uint64_t at, T& out) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return false;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return true;
}

bool holds(Bytes bytes, std::uint64_t at, std::uint64_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_with(Bytes bytes, std::string_view magic) {
  return text_of(bytes).starts_with(magic);
}

bool begins_with(Bytes bytes, std::uint32_t magic) {
  std::uint32_t found = 0;
  return read(bytes, 0, found) && found == magic;
}

/// PTX begins with blank space and then a directive, a comment or a line marker, and ends with a NUL.
bool ptx_stays_inside(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  const auto first = text.find_first_not_of(" \t\r\n\v\f");
  return first != text.npos && std::string_view("./#").find(text[first]) != std::string_view::npos &&
         text.find('\0') != text.npos;
}

/// Entries of a fixed size: a whole number of them.
template <class Entry>
bool is_table_of(const Elf64_Shdr& section) {
  return section.sh_entsize == sizeof(Entry) && section.sh_size % sizeof(Entry) == 0;
}

class Elf {
 public:
  explicit Elf(Bytes bytes) : bytes_(bytes) {}

  [[nodiscard]] bool stays_inside(bool with_fatbins) const {
    Elf64_Ehdr header;
    if (!read(bytes_, 0, header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_ehsize != sizeof(header)) {
      return false;
    }
    return segments_inside(header) && sections_inside(header, with_fatbins);
  }

 private:
  [[nodiscard]] bool segments_inside(const Elf64_Ehdr& header) const {
    if (header.e_phnum == 0) return true;
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == PN_XNUM ||
        !holds(bytes_, header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
      return false;
    }
    for (unsigned n = 0; n < header.e_phnum; ++n) {
      Elf64_Phdr segment;
      if (!read(bytes_, header.e_phoff + n * sizeof(segment), segment)) return false;
      if (segment.p_type != PT_NULL && !holds(bytes_, segment.p_offset, segment.p_filesz)) return false;
    }
    return true;
  }

  [[nodiscard]] bool sections_inside(const Elf64_Ehdr& header, bool with_fatbins) const {
    if (header.e_shoff == 0) return header.e_shnum == 0;
    Elf64_Shdr first;
    if (header.e_shentsize != sizeof(first) || !read(bytes_, header.e_shoff, first)) return false;
    // Counts that do not fit the header stand in the first section.
    const std::uint64_t count = header.e_shnum == 0 ? first.sh_size : header.e_shnum;
    const std::uint64_t names = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
    if (count > bytes_.size() / sizeof(first) || !holds(bytes_, header.e_shoff, count * sizeof(first)) ||
        (names != 0 && names >= count)) {
      return false;
    }
    const Sections sections{header.e_shoff, count, names};
    for (std::uint64_t n = 1; n < count; ++n) {
      if (!section_inside(sections, section(sections, n), with_fatbins)) return false;
    }
    return true;
  }

  struct Sections {
    std::uint64_t offset, count, names;
  };

  /// Only for a table that lies inside.
  [[nodiscard]] Elf64_Shdr section(const Sections& sections, std::uint64_t n) const {
    Elf64_Shdr found{};
    static_cast<void>(read(bytes_, sections.offset + n * sizeof(found), found));
    return found;
  }

  [[nodiscard]] Bytes content(const Elf64_Shdr& section) const {
    return has_content(section) ? bytes_.subspan(section.sh_offset, section.sh_size) : Bytes{};
  }

  /// Section `n` is a table of strings that end, and `at` lies in it.
  [[nodiscard]] bool is_string(const Sections& sections, std::uint64_t n, std::uint64_t at) const {
    if (n >= sections.count) return false;
    const Elf64_Shdr table = section(sections, n);
    return table.sh_type == SHT_STRTAB && holds(bytes_, table.sh_offset, table.sh_size) &&
           at < table.sh_size && content(table).back() == std::byte{0};
  }

  [[nodiscard]] bool section_inside(const Sections& all, const Elf64_Shdr& one, bool with_fatbins) const {
    if (one.sh_type == SHT_NULL) return true;
    if (has_content(one) && !holds(bytes_, one.sh_offset, one.sh_size)) return false;
    if (all.names != 0 && !is_string(all, all.names, one.sh_name)) return false;
    if (one.sh_link >= all.count) return false;
    switch (one.sh_type) {
      case SHT_REL:
        return is_table_of<Elf64_Rel>(one) && one.sh_info < all.count;
      case SHT_RELA:
        return is_table_of<Elf64_Rela>(one) && one.sh_info < all.count;
      case SHT_SYMTAB:
      case SHT_DYNSYM:
        return is_table_of<Elf64_Sym>(one) && symbols_inside(all, one);
      default:
        return !with_fatbins || !begins_with(content(one), fatbin_magic) || fatbins_inside(content(one));
    }
  }

  [[nodiscard]] bool symbols_inside(const Sections& all, const Elf64_Shdr& table) const {
    for (std::uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!read(bytes_, table.sh_offset + at, symbol)) return false;
      if (symbol.st_name != 0 && !is_string(all, table.sh_link, symbol.st_name)) return false;
      if (symbol.st_shndx < SHN_LORESERVE && symbol.st_shndx >= all.count) return false;
    }
    return true;
  }

  [[nodiscard]] static bool fatbins_inside(Bytes chain);

  Bytes bytes_;
};

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version, header_size;
  std::uint64_t entries_size;
};

static_assert(sizeof(FatbinHeader) == 16);

constexpr std::size_t least_entry = 64;                           // what is read of an entry's header
constexpr std::uint64_t packed_flags = 0x2000 | 0x8000 | 0x1000;  // LZ4, Zstandard, older LZ4

bool entry_inside(Bytes entry, std::uint64_t header_size) {
  std::uint16_t kind = 0;
  std::uint32_t stored = 0, options = 0, name = 0, name_size = 0;
  std::uint64_t flags = 0, unpacked = 0;
  if (!read(entry, 0, kind) || !read(entry, 16, stored) || !read(entry, 20, options) ||
      !read(entry, 32, name) || !read(entry, 36, name_size) || !read(entry, 40, flags) ||
      !read(entry, 56, unpacked)) {
    return false;
  }
  Bytes payload = entry.subspan(header_size);
  if (stored > payload.size() || options > entry.size() || !holds(entry, name, name_size)) return false;
  if (unpacked > max_unpacked) return false;
  if ((flags & packed_flags) != 0) return true;
  if (begins_with(payload, ELFMAG)) return Elf(payload).stays_inside(false);
  return kind != 1 || text_of(payload).find('\0') != std::string_view::npos;
}

/// One fat binary at the front of `bytes`; how long it is.
bool fatbin_inside(Bytes bytes, std::uint64_t& size) {
  FatbinHeader header;
  if (!read(bytes, 0, header) || header.magic != fatbin_magic || header.header_size < sizeof(header) ||
      header.header_size > bytes.size() || header.entries_size > bytes.size() - header.header_size) {
    return false;
  }
  size = header.header_size + header.entries_size;
  Bytes rest = bytes.subspan(header.header_size, header.entries_size);
  while (!rest.empty()) {
    std::uint32_t header_size = 0;
    std::uint64_t padded = 0;
    if (!read(rest, 4, header_size) || !read(rest, 8, padded) || header_size < least_entry ||
        header_size > rest.size() || padded > rest.size() - header_size ||
        !entry_inside(rest.first(header_size + padded), header_size)) {
      return false;
    }
    rest = rest.subspan(header_size + padded);
  }
  return true;
}

/// What object files have: one fat binary after the other.
bool Elf::fatbins_inside(Bytes chain) {
  while (begins_with(chain, fatbin_magic)) {
    std::uint64_t size = 0;
    if (!fatbin_inside(chain, size)) return false;
    chain = chain.subspan(size);
    const auto next = std::find_if(chain.begin(), chain.end(), [](std::byte b) { return b != std::byte{0}; });
    chain = chain.subspan(static_cast<std::size_t>(next - chain.begin()));
  }
  return true;
}

bool archive_inside(Bytes bytes) {
  constexpr std::size_t header_size = 60, size_at = 48, size_digits = 10;
  Bytes rest = bytes.subspan(archive_magic.size());
  while (!rest.empty()) {
    if (rest.size() < header_size || text_of(rest).substr(58, 2) != "`\n") return false;
    const std::string_view digits = text_of(rest).substr(size_at, size_digits);
    std::uint64_t size = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (parsed.ec != std::errc{} || !holds(rest, header_size, size)) return false;
    const Bytes member = rest.subspan(header_size, size);
    if (begins_with(member, wrapper_magic)) return false;
    if (begins_with(member, ELFMAG) && !Elf(member).stays_inside(true)) return false;
    std::uint64_t fatbin_size = 0;
    if (begins_with(member, fatbin_magic) && !fatbin_inside(member, fatbin_size)) return false;
    rest = rest.subspan(header_size + size);
    if (size % 2 != 0 && !rest.empty()) rest = rest.subspan(1);
  }
  return true;
}

}  // namespace

bool image_stays_inside(Bytes image) {
  if (image.empty() || image.back() != std::byte{0}) return false;
  std::uint64_t size = 0;
  const Bytes sent = image.first(image.size() - 1);
  if (begins_with(sent, ELFMAG)) return Elf(sent).stays_inside(true);
  if (begins_with(sent, fatbin_magic)) return fatbin_inside(sent, size);
  return ptx_stays_inside(image);
}

bool link_input_stays_inside(Bytes input) {
  return begins_with(input, archive_magic) ? archive_inside(input.first(input.size() - 1))
                                           : image_stays_inside(input);
}

}  // namespace gpupool::worker
