#include "softgpu/jit/object_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace softgpu::jit {
namespace {

constexpr size_t page_bytes = 4096, most_object_bytes = size_t{1} << 28;

class Loader {
 public:
  Loader(std::span<const std::byte> object, std::string& error) : object_(object), error_(error) {}

  void* load(const std::string& symbol) {
    if (!read_header() || !place_sections() || !read_symbols() || !relocate()) {
      if (region_ != nullptr) munmap(region_, mapped_);
      if (error_.empty()) error_ = "the object is malformed";
      return nullptr;
    }
    void* found = nullptr;
    for (size_t i = 0; i < symbols_.size(); ++i) {
      if (symbols_[i].st_shndx != SHN_UNDEF && name_of(symbols_[i]) == symbol)
        found = reinterpret_cast<void*>(addresses_[i]);
    }
    if (found == nullptr || mprotect(region_, mapped_, PROT_READ | PROT_EXEC) != 0) {
      munmap(region_, mapped_);
      error_ = "the object has no function " + symbol;
      return nullptr;
    }
    return found;
  }

 private:
  // A copy of the structure at that place; false if it lies outside.
  template <class T>
  bool read(uint64_t offset, T& into) const {
    if (offset > object_.size() || object_.size() - offset < sizeof(T)) return false;
    std::memcpy(&into, object_.data() + offset, sizeof(T));
    return true;
  }

  bool read_header() {
    Elf64_Ehdr header;
    if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_type != ET_REL ||
        header.e_machine != EM_X86_64 || header.e_shentsize != sizeof(Elf64_Shdr))
      return false;
    sections_.resize(header.e_shnum);
    for (size_t i = 0; i < sections_.size(); ++i) {
      Elf64_Shdr& section = sections_[i];
      if (!read(header.e_shoff + i * sizeof(Elf64_Shdr), section)) return false;
      if (section.sh_type != SHT_NOBITS &&
          (section.sh_offset > object_.size() || object_.size() - section.sh_offset < section.sh_size))
        return false;
    }
    return true;
  }

  bool place_sections() {
    size_t bytes = 0, externals = 0;
    offsets_.assign(sections_.size(), 0);
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if (section.sh_type == SHT_RELA) externals += section.sh_size / sizeof(Elf64_Rela);
      if (!(section.sh_flags & SHF_ALLOC)) continue;
      const uint64_t alignment = section.sh_addralign == 0 ? 1 : section.sh_addralign;
      if (alignment > page_bytes || (alignment & (alignment - 1)) != 0 || section.sh_size > most_object_bytes)
        return false;
      bytes = (bytes + alignment - 1) / alignment * alignment;
      offsets_[i] = bytes;
      bytes += section.sh_size;
      if (bytes > most_object_bytes) return false;
    }
    stubs_ = (bytes + 15) / 16 * 16;
    mapped_ = (stubs_ + externals * stub_bytes + page_bytes - 1) / page_bytes * page_bytes;
    void* const pages = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      error_ = "out of memory for machine code";
      return false;
    }
    region_ = static_cast<std::byte*>(pages);
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if ((section.sh_flags & SHF_ALLOC) && section.sh_type != SHT_NOBITS && section.sh_size != 0)
        std::memcpy(region_ + offsets_[i], object_.data() + section.sh_offset, section.sh_size);
    }
    return true;
  }

  [[nodiscard]] std::string_view name_of(const Elf64_Sym& symbol) const {
    if (symbol.st_name >= names_.size()) return {};
    const std::string_view rest = names_.substr(symbol.st_name);
    return rest.substr(0, rest.find('\0'));
  }

  bool read_symbols() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB) continue;
      if (section.sh_link >= sections_.size()) return false;
      const Elf64_Shdr& names = sections_[section.sh_link];
      if (names.sh_type != SHT_STRTAB) return false;
      names_ = {reinterpret_cast<const char*>(object_.data() + names.sh_offset), names.sh_size};
      symbols_.resize(section.sh_size / sizeof(Elf64_Sym));
      for (size_t i = 0; i < symbols_.size(); ++i) {
        if (!read(section.sh_offset + i * sizeof(Elf64_Sym), symbols_[i])) return false;
      }
    }
    for (const Elf64_Sym& symbol : symbols_) {
      uint64_t address = 0;
      if (symbol.st_shndx == SHN_UNDEF) {
        const std::string name(name_of(symbol));
        address = name.empty() ? 0 : reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, name.c_str()));
        if (!name.empty() && address == 0) {
          error_ = "function " + name + " is not known";
          return false;
        }
      } else if (symbol.st_shndx < sections_.size()) {
        if (symbol.st_value > sections_[symbol.st_shndx].sh_size) return false;
        address = reinterpret_cast<uint64_t>(region_) + offsets_[symbol.st_shndx] + symbol.st_value;
      }
      addresses_.push_back(address);
    }
    return true;
  }

  // Sixteen bytes: the address of something outside, after a jump to it.
  uint64_t stub_for(uint64_t address, bool only_address) {
    std::byte* const stub = region_ + stubs_ + used_stubs_++ * stub_bytes;
    constexpr unsigned char jump_code[] = {0xff, 0x25, 0x02, 0x00, 0x00, 0x00, 0x90, 0x90};  // jmp [rip + 2]
    std::memcpy(stub, jump_code, sizeof(jump_code));
    std::memcpy(stub + sizeof(jump_code), &address, sizeof(address));
    return reinterpret_cast<uint64_t>(stub) + (only_address ? sizeof(jump_code) : 0);
  }

  bool relocate() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_RELA || section.sh_info >= sections_.size()) continue;
      const Elf64_Shdr& target = sections_[section.sh_info];
      if (!(target.sh_flags & SHF_ALLOC)) continue;
      for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= section.sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela entry;
        if (!read(section.sh_offset + at, entry)) return false;
        const uint64_t index = ELF64_R_SYM(entry.r_info), type = ELF64_R_TYPE(entry.r_info);
        const uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
        if (index >= addresses_.size() || entry.r_offset > target.sh_size ||
            target.sh_size - entry.r_offset < width)
          return false;
        const bool outside = symbols_[index].st_shndx == SHN_UNDEF;
        std::byte* const place = region_ + offsets_[section.sh_info] + entry.r_offset;
        const auto here = reinterpret_cast<uint64_t>(place), addend = static_cast<uint64_t>(entry.r_addend);
        uint64_t address = addresses_[index];
        int64_t value = 0;
        switch (type) {
          case R_X86_64_64:
            value = static_cast<int64_t>(address + addend);
            break;
          case R_X86_64_PLT32:
            if (outside) address = stub_for(address, false);
            value = static_cast<int64_t>(address + addend - here);
            break;
          case R_X86_64_GOTPCREL:
          case R_X86_64_GOTPCRELX:
          case R_X86_64_REX_GOTPCRELX:
            value = static_cast<int64_t>(stub_for(address, true) + addend - here);
            break;
          case R_X86_64_PC32:
          case R_X86_64_PC64:
            value = static_cast<int64_t>(address + addend - here);
            break;
          default:
            error_ = "relocation of type " + std::to_string(type) + " is not supported";
            return false;
        }
        if (width == 4 && value != static_cast<int32_t>(value)) {
          error_ = "a relocation does not fit";
          return false;
        }
        std::memcpy(place, &value, width);
      }
    }
    return true;
  }

  static constexpr size_t stub_bytes = 16;
  std::span<const std::byte> object_;
  std::string& error_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> offsets_, addresses_;
  std::vector<Elf64_Sym> symbols_;
  std::string_view names_;
  std::byte* region_ = nullptr;
  size_t stubs_ = 0, used_stubs_ = 0, mapped_ = 0;
};

}  // namespace

void* load_object(std::span<const std::byte> object, const std::string& symbol, std::string& error) {
  error.clear();
  return Loader(object, error).load(symbol);
}

}  // namespace softgpu::jit
