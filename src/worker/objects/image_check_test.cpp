// Accepted images lie inside their bytes, whatever was done to them; good ones are accepted.
#include "worker/objects/image_check.h"

#include <doctest/doctest.h>
#include <elf.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace gpupool::worker;

namespace {

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class T>
void store(std::string& in, std::size_t at, T value) {
  std::memcpy(in.data() + at, &value, sizeof(value));
}
template <class T>
T load(const std::string& from, std::size_t at) {
  T value;
  REQUIRE(at <= from.size());
  REQUIRE(sizeof(T) <= from.size() - at);
  std::memcpy(&value, from.data() + at, sizeof(T));
  return value;
}

/// Names, a symbol, code and what occupies no bytes, like what ptxas writes.
std::string good_elf() {
  const std::string names("\0.names\0.code\0.symbols\0.shared\0kernel\0", 38);
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> sections(5);
  const auto add = [&](unsigned n, std::uint32_t type, std::uint32_t name, const std::string& content) {
    sections[n].sh_type = type;
    sections[n].sh_name = name;
    sections[n].sh_offset = bytes.size();
    sections[n].sh_size = content.size();
    bytes += content;
  };
  add(1, SHT_STRTAB, 1, names);
  add(2, SHT_PROGBITS, 8, std::string(32, 'c'));
  std::string symbols(sizeof(Elf64_Sym), '\0');
  Elf64_Sym symbol{};
  symbol.st_name = 31;
  symbol.st_shndx = 2;
  append(symbols, symbol);
  add(3, SHT_SYMTAB, 14, symbols);
  sections[3].sh_link = 1;
  sections[3].sh_entsize = sizeof(Elf64_Sym);
  add(4, SHT_NOBITS, 23, "");
  sections[4].sh_size = 1 << 16;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_filesz = bytes.size();
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_ehsize = sizeof(header);
  header.e_phoff = bytes.size();
  header.e_phentsize = sizeof(segment);
  header.e_phnum = 1;
  append(bytes, segment);
  header.e_shoff = bytes.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 5;
  header.e_shstrndx = 1;
  for (const auto& section : sections) append(bytes, section);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

std::string entry(std::uint16_t kind, const std::string& payload) {
  std::string bytes(64, '\0');
  store(bytes, 0, kind);
  store(bytes, 2, std::uint16_t{0x101});
  store(bytes, 4, std::uint32_t{64});
  store(bytes, 8, std::uint64_t{payload.size()});
  return bytes + payload;
}

std::string good_fatbin() {
  const std::string entries = entry(1, std::string(".version 8.0\0\0\0\0", 16)) + entry(2, good_elf());
  std::string bytes;
  append(bytes, std::uint32_t{0xba55ed50});
  append(bytes, std::uint16_t{1});
  append(bytes, std::uint16_t{16});
  append(bytes, std::uint64_t{entries.size()});
  return bytes + entries;
}

std::string archive_of(const std::string& member) {
  std::string size = std::to_string(member.size());
  size.resize(10, ' ');
  return "!<arch>\n" + std::string("member/") + std::string(41, ' ') + size + "`\n" + member;
}

bool inside(const std::string& image, bool (*check)(std::span<const std::byte>) = image_stays_inside) {
  const std::vector<char> exact(image.c_str(),
                                image.c_str() + image.size() + 1);  // so that sanitizers see it
  return check(std::as_bytes(std::span(exact)));
}

/// Follows an ELF file as a driver does: `load` fails the test outside of the bytes.
void walk_elf(const std::string& image) {
  const auto header = load<Elf64_Ehdr>(image, 0);
  for (unsigned n = 0; n < header.e_phnum; ++n) {
    const auto segment = load<Elf64_Phdr>(image, header.e_phoff + n * header.e_phentsize);
    if (segment.p_type == PT_NULL) continue;
    CHECK(segment.p_offset <= image.size());
    CHECK(segment.p_filesz <= image.size() - segment.p_offset);
  }
  for (unsigned n = 1; n < header.e_shnum; ++n) {
    const auto section = load<Elf64_Shdr>(image, header.e_shoff + n * header.e_shentsize);
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    CHECK(section.sh_offset <= image.size());
    CHECK(section.sh_size <= image.size() - section.sh_offset);
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto names = load<Elf64_Shdr>(image, header.e_shoff + section.sh_link * header.e_shentsize);
    for (std::uint64_t at = 0; at < section.sh_size; at += section.sh_entsize) {
      const auto symbol = load<Elf64_Sym>(image, section.sh_offset + at);
      if (symbol.st_name == 0) continue;
      CHECK(image.substr(names.sh_offset, names.sh_size).find('\0', symbol.st_name) != std::string::npos);
    }
  }
}

void walk_fatbin(const std::string& image) {
  const auto header = load<std::uint16_t>(image, 6);
  const auto end = header + load<std::uint64_t>(image, 8);
  REQUIRE(end <= image.size());
  for (std::uint64_t at = header; at < end;) {
    const auto payload = at + load<std::uint32_t>(image, at + 4);
    const auto size = load<std::uint64_t>(image, at + 8);
    REQUIRE(payload <= end);
    REQUIRE(size <= end - payload);
    const std::string content = image.substr(payload, size);
    if ((load<std::uint64_t>(image, at + 40) & 0xb000) == 0 && content.starts_with(ELFMAG)) walk_elf(content);
    at = payload + size;
  }
}

}  // namespace

TEST_CASE("good images pass") {
  CHECK(inside(".version 8.0\n.target sm_80\n"));
  CHECK(inside("  // a comment\n.version 8.0"));
  CHECK(inside(good_elf()));
  CHECK(inside(good_fatbin()));
  CHECK(inside(archive_of(good_elf()), link_input_stays_inside));
  CHECK(inside(archive_of(good_fatbin()), link_input_stays_inside));
  CHECK(inside(good_elf(), link_input_stays_inside));
}

TEST_CASE("a wrapper holds an address of the client and never passes") {
  std::string wrapper;
  append(wrapper, std::uint32_t{0x466243b1});
  append(wrapper, std::uint32_t{1});
  append(wrapper, std::uint64_t{0x4141414141414140});
  append(wrapper, std::uint64_t{0});
  CHECK_FALSE(inside(wrapper));
  CHECK_FALSE(inside(wrapper, link_input_stays_inside));
  CHECK_FALSE(inside(archive_of(wrapper), link_input_stays_inside));
}

TEST_CASE("what is no image does not pass") {
  CHECK_FALSE(image_stays_inside({}));
  for (const char* text : {"", "x", "garbage", "\x7f",
                           "\x7f"
                           "ELF",
                           "!<arch>\n", "BC\xc0\xde"}) {
    CHECK_FALSE(inside(text));
  }
  const std::string unended(".version 8.0");
  CHECK_FALSE(image_stays_inside(std::as_bytes(std::span(unended))));
}

TEST_CASE("images that are cut off do not pass") {
  for (const std::string& image : {good_elf(), good_fatbin()}) {
    for (std::size_t size = 0; size < image.size(); ++size) CHECK_FALSE(inside(image.substr(0, size)));
  }
  const std::string archive = archive_of(good_elf());
  for (std::size_t size = 9; size < archive.size(); ++size) {
    CHECK_FALSE(inside(archive.substr(0, size), link_input_stays_inside));
  }
}

TEST_CASE("damaged images that pass can still be followed") {
  std::mt19937_64 random(1);
  unsigned passed = 0, refused = 0;
  const auto attempt = [&](const std::string& image) {
    if (!inside(image)) {
      ++refused;
      return;
    }
    ++passed;
    if (image.starts_with(ELFMAG)) walk_elf(image);
    if (image.starts_with("\x50\xed\x55\xba")) walk_fatbin(image);
  };
  for (const std::string& good : {good_elf(), good_fatbin()}) {
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
        std::string image = good;
        image[at] = static_cast<char>(value);
        attempt(image);
      }
      for (std::uint64_t value : {~std::uint64_t{0}, ~std::uint64_t{0} - 63, std::uint64_t{good.size()},
                                  std::uint64_t{good.size()} - 8, std::uint64_t{1} << 63}) {
        std::string image = good;
        if (at + sizeof(value) > image.size()) continue;
        store(image, at, value);
        attempt(image);
      }
    }
    for (int n = 0; n < 20000; ++n) {
      std::string image = good;
      for (auto k = 1 + random() % 4; k > 0; --k) {
        image[random() % image.size()] = static_cast<char>(random() >> (random() % 8));
      }
      attempt(image);
    }
  }
  CHECK(passed > 1000);
  CHECK(refused > 1000);
}
