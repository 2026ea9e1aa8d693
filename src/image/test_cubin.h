// A cubin for tests, put together like what ptxas writes: two kernels, three variables.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace gpupool::image {

class TestCubin {
 public:
  /// saxpy(u64, u8, 40 bytes, f32), 256 threads at most, 40 registers, 1024 bytes of shared memory;
  /// other(u64), 32 x 2 threads; launches = 7, table of 64 bytes, coefficients of 16 constant bytes.
  /// `relocations`: what is to be filled into initial values; empty: nothing.
  static std::string make(unsigned architecture = 80, const std::string& relocations = "") {
    return TestCubin(architecture, relocations).bytes_;
  }

 private:
  template <class T>
  static void append(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  static void info(std::string& to, std::uint8_t attribute, const std::vector<std::uint32_t>& words) {
    append<std::uint8_t>(to, 4);
    append<std::uint8_t>(to, attribute);
    append<std::uint16_t>(to, static_cast<std::uint16_t>(words.size() * 4));
    for (const auto word : words) append(to, word);
  }

  static void short_info(std::string& to, std::uint8_t attribute, std::uint16_t value) {
    append<std::uint8_t>(to, 3);
    append<std::uint8_t>(to, attribute);
    append(to, value);
  }

  static void parameter(std::string& to, std::uint32_t ordinal, std::uint32_t offset, std::uint32_t size) {
    info(to, 0x17, {0, ordinal | offset << 16, size << 18 | 0x1f000});
  }

  unsigned section(const char* name, std::uint32_t type, const std::string& content,
                   std::uint64_t alignment = 4) {
    Elf64_Shdr one{};
    one.sh_name = static_cast<std::uint32_t>(names_.size());
    names_ += name;
    names_ += '\0';
    one.sh_type = type;
    one.sh_offset = bytes_.size();
    one.sh_size = content.size();
    one.sh_addralign = alignment;
    if (type != SHT_NOBITS) bytes_ += content;
    sections_.push_back(one);
    return static_cast<unsigned>(sections_.size() - 1);
  }

  void symbol(const char* name, unsigned char type, unsigned char other, unsigned in, std::uint64_t value,
              std::uint64_t size) {
    Elf64_Sym one{};
    one.st_name = static_cast<std::uint32_t>(strings_.size());
    strings_ += name;
    strings_ += '\0';
    one.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, type));
    one.st_other = other;
    one.st_shndx = static_cast<std::uint16_t>(in);
    one.st_value = value;
    one.st_size = size;
    append(symbols_, one);
  }

  TestCubin(unsigned architecture, const std::string& relocations)
      : bytes_(sizeof(Elf64_Ehdr), '\0'), sections_(1) {
    const unsigned saxpy = section(".text.saxpy", SHT_PROGBITS, std::string(64, 'c'), 128);
    const unsigned other = section(".text.other", SHT_PROGBITS, std::string(32, 'c'), 128);
    const unsigned initialised = section(".nv.global.init", SHT_PROGBITS, std::string("\7\0\0\0", 4));
    const unsigned zeros = section(".nv.global", SHT_NOBITS, std::string(64, '\0'), 8);
    const unsigned constants = section(".nv.constant3", SHT_PROGBITS, std::string(16, 'k'));
    if (!relocations.empty()) section(".rela.nv.global.init", SHT_RELA, relocations, 8);
    section(".nv.shared.saxpy", SHT_NOBITS, std::string(1024, '\0'), 16);
    symbols_.assign(sizeof(Elf64_Sym), '\0');
    symbol("saxpy", STT_FUNC, 0x10, saxpy, 0, 64);
    symbol("other", STT_FUNC, 0x10, other, 0, 32);
    symbol("helper", STT_FUNC, 0, saxpy, 32, 32);
    symbol("launches", STT_OBJECT, 0, initialised, 0, 4);
    symbol("table", STT_OBJECT, 0, zeros, 0, 64);
    symbol("coefficients", STT_OBJECT, 0, constants, 0, 16);
    std::string common, of_saxpy, of_other;
    info(common, 0x2f, {1, 40});
    info(common, 0x2f, {2, 8});
    info(common, 0x11, {1, 16});
    info(of_saxpy, 0x37, {0x81});
    short_info(of_saxpy, 0x19, 60);
    parameter(of_saxpy, 3, 56, 4);
    info(of_saxpy, 0x45, {0, 2 | 16u << 16, 40});
    parameter(of_saxpy, 1, 8, 1);
    parameter(of_saxpy, 0, 0, 8);
    info(of_saxpy, 0x05, {256, 1, 1});
    short_info(of_other, 0x19, 8);
    parameter(of_other, 0, 0, 8);
    info(of_other, 0x10, {32, 2, 1});
    section(".nv.info", 0x70000000, common);
    section(".nv.info.saxpy", 0x70000000, of_saxpy);
    section(".nv.info.other", 0x70000000, of_other);
    const unsigned strings = section(".strtab", SHT_STRTAB, strings_, 1);
    const unsigned symbols = section(".symtab", SHT_SYMTAB, symbols_, 8);
    sections_[symbols].sh_link = strings;
    sections_[symbols].sh_entsize = sizeof(Elf64_Sym);
    const auto name_of_names = static_cast<std::uint32_t>(names_.size());
    names_ += std::string(".shstrtab") + '\0';
    const std::string names = names_;
    const unsigned last = section("", SHT_STRTAB, names, 1);
    sections_[last].sh_name = name_of_names;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_ABIVERSION] = architecture >= 100 ? 8 : 7;
    header.e_flags = architecture >= 100 ? architecture << 8 : architecture | architecture << 16;
    header.e_type = ET_EXEC;
    header.e_machine = 190;
    header.e_ehsize = sizeof(header);
    header.e_shoff = bytes_.size();
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<std::uint16_t>(sections_.size());
    header.e_shstrndx = static_cast<std::uint16_t>(last);
    for (const auto& one : sections_) append(bytes_, one);
    std::memcpy(bytes_.data(), &header, sizeof(header));
  }

  std::string bytes_, names_ = std::string(1, '\0'), strings_ = std::string(1, '\0'), symbols_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace gpupool::image
