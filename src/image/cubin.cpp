#include "image/cubin.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>

#include "image/elf_sections.h"

namespace gpupool::image {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t max_parameter_bytes = 32764;  // of any architecture
constexpr std::uint64_t max_shared_bytes = 1u << 20;
constexpr std::uint64_t max_variable = std::uint64_t{1} << 40;
constexpr std::uint64_t max_device_bytes = std::uint64_t{1} << 50;
constexpr unsigned char kernel_flag = 0x10;   // in a symbol's st_other: a kernel, not a function of one
constexpr unsigned char managed_flag = 0x04;  // a variable in managed memory

/// Attributes in the .nv.info sections, as far as they say something that is reported.
enum class Info : std::uint8_t {
  max_threads = 0x05,
  required_threads = 0x10,
  frame_bytes = 0x11,
  min_stack_bytes = 0x12,
  parameter = 0x17,
  parameter_bytes = 0x19,
  registers = 0x2f,
  large_parameter = 0x45,  // the same as `parameter` with fields wide enough for 32 KiB
};

template <class T>
bool read(Bytes bytes, std::uint64_t at, T& out) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return false;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return true;
}

bool slice(Bytes bytes, std::uint64_t at, std::uint64_t size, Bytes& out) {
  if (at > bytes.size() || size > bytes.size() - at) return false;
  out = bytes.subspan(at, size);
  return true;
}

/// The string at `at`, which must end inside the table.
bool string_at(Bytes table, std::uint64_t at, std::string_view& out) {
  if (at >= table.size()) return false;
  const auto* const start = reinterpret_cast<const char*>(table.data()) + at;
  const std::size_t length = strnlen(start, table.size() - at);
  if (length == table.size() - at) return false;
  out = {start, length};
  return true;
}

unsigned architecture_of(const Elf64_Ehdr& header) {
  // Since ABI version 8 the number stands in the second byte.
  return header.e_ident[EI_ABIVERSION] >= 8 ? (header.e_flags >> 8) & 0xff : header.e_flags & 0xff;
}

bool read_header(Bytes bytes, Elf64_Ehdr& header) {
  return read(bytes, 0, header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
         header.e_machine == machine_cuda && header.e_shentsize == sizeof(Elf64_Shdr) && header.e_shoff != 0;
}

class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  bool run(Cubin& out) {
    Elf64_Ehdr header;
    if (!read_header(bytes_, header) || !read_sections(header)) return false;
    out.architecture = architecture_of(header);
    add_up(out);
    out.has_addresses = has_addresses();
    return read_symbols(out) && read_common_info(out) && read_kernels(out);
  }

 private:
  struct Section {
    Elf64_Shdr header{};
    std::string_view name;
    Bytes content;
  };

  bool read_sections(const Elf64_Ehdr& header) {
    Elf64_Shdr first;
    if (!read(bytes_, header.e_shoff, first)) return false;
    const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
    const std::uint64_t names = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
    Bytes table;
    if (count > bytes_.size() / sizeof(first) || names >= count ||
        !slice(bytes_, header.e_shoff, count * sizeof(first), table)) {
      return false;
    }
    sections_.resize(count);
    for (std::uint64_t n = 1; n < count; ++n) {
      Section& section = sections_[n];
      if (!read(table, n * sizeof(first), section.header)) return false;
      if (section.header.sh_type == SHT_NULL || !has_content(section.header)) continue;
      if (!slice(bytes_, section.header.sh_offset, section.header.sh_size, section.content)) return false;
    }
    for (Section& section : sections_) {
      if (section.header.sh_type == SHT_NULL) continue;
      if (!string_at(sections_[names].content, section.header.sh_name, section.name)) return false;
      by_name_.emplace(section.name, &section);
    }
    return true;
  }

  void add_up(Cubin& out) const {
    for (const Section& section : sections_) {
      const std::string_view name = section.name;
      if (!name.starts_with(".text") && !name.starts_with(".nv.global") &&
          !name.starts_with(".nv.constant")) {
        continue;
      }
      out.device_bytes =
          std::min(out.device_bytes + std::min(section.header.sh_size, max_device_bytes), max_device_bytes);
    }
  }

  /// Whether the driver fills addresses into the initial values of variables.
  [[nodiscard]] bool has_addresses() const {
    return std::ranges::any_of(sections_, [](const Section& section) {
      if (section.header.sh_type != SHT_REL && section.header.sh_type != SHT_RELA) return false;
      const std::string_view name = section.name;
      return !section.content.empty() &&
             (name.ends_with(".nv.global.init") || name.ends_with(".nv.constant3"));
    });
  }

  [[nodiscard]] const Section* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  bool read_symbols(Cubin& out) {
    for (const Section& section : sections_) {
      if (section.header.sh_type != SHT_SYMTAB) continue;
      if (section.header.sh_entsize != sizeof(Elf64_Sym) || section.header.sh_link >= sections_.size()) {
        return false;
      }
      const Bytes names = sections_[section.header.sh_link].content;
      for (std::uint64_t n = 0; (n + 1) * sizeof(Elf64_Sym) <= section.content.size(); ++n) {
        Elf64_Sym symbol;
        if (!read(section.content, n * sizeof(symbol), symbol)) return false;
        if (!read_symbol(out, symbol, static_cast<std::uint32_t>(n), names)) return false;
      }
      return true;
    }
    return false;
  }

  bool read_symbol(Cubin& out, const Elf64_Sym& symbol, std::uint32_t number, Bytes names) {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_OBJECT) || symbol.st_shndx == SHN_UNDEF ||
        symbol.st_shndx >= sections_.size()) {
      return true;
    }
    const Section& section = sections_[symbol.st_shndx];
    std::string_view name;
    if (!string_at(names, symbol.st_name, name) || name.empty()) return false;
    if (type == STT_FUNC) {
      if ((symbol.st_other & kernel_flag) == 0 || !section.name.starts_with(".text.")) return true;
      kernel_of_symbol_.emplace(number, out.kernels.size());
      out.kernels.emplace_back().name = name;
      // Older architectures keep the number of registers here; .nv.info overrides it.
      out.kernels.back().registers = section.header.sh_info >> 24;
      return true;
    }
    out.has_managed = out.has_managed || (symbol.st_other & managed_flag) != 0;
    const bool is_constant = section.name == ".nv.constant3";
    if (!is_constant && section.name != ".nv.global" && section.name != ".nv.global.init") return true;
    CubinVariable& variable = out.variables.emplace_back();
    variable.name = name;
    variable.size = symbol.st_size;
    variable.is_constant = is_constant;
    const std::uint64_t alignment = section.header.sh_addralign;
    variable.alignment =
        alignment != 0 && (alignment & (alignment - 1)) == 0 && alignment <= 256 ? alignment : 1;
    if (symbol.st_size > max_variable) return false;
    return !has_content(section.header) ||
           slice(section.content, symbol.st_value, symbol.st_size, variable.initial);
  }

  /// Calls `each(attribute, value of a short record, payload of a long one)`, which returns false to refuse.
  template <class Each>
  static bool each_info(Bytes bytes, Each each) {
    constexpr std::uint8_t with_payload = 4;
    std::uint64_t at = 0;
    while (at + 4 <= bytes.size()) {
      std::uint8_t format = 0, attribute = 0;
      std::uint16_t value = 0;
      if (!read(bytes, at, format) || !read(bytes, at + 1, attribute) || !read(bytes, at + 2, value)) {
        return false;
      }
      at += 4;
      Bytes payload;
      if (format == with_payload && !slice(bytes, at, value, payload)) return false;
      at += payload.size();
      if (!each(static_cast<Info>(attribute), value, payload)) return false;
    }
    return true;
  }

  /// Of all kernels, by the number of their symbol.
  bool read_common_info(Cubin& out) const {
    const Section* const section = find(".nv.info");
    if (section == nullptr) return true;
    return each_info(section->content, [&](Info info, std::uint16_t, Bytes payload) {
      std::uint32_t symbol = 0, value = 0;
      if (info != Info::registers && info != Info::frame_bytes && info != Info::min_stack_bytes) return true;
      if (!read(payload, 0, symbol) || !read(payload, 4, value)) return false;
      const auto found = kernel_of_symbol_.find(symbol);
      if (found == kernel_of_symbol_.end()) return true;
      CubinKernel& kernel = out.kernels[found->second];
      if (info == Info::registers) {
        kernel.registers = std::min<std::uint32_t>(value, 255);
      } else {
        kernel.local_bytes = std::max(kernel.local_bytes, value);
      }
      return true;
    });
  }

  bool read_kernels(Cubin& out) const {
    // Newer architectures keep the first KiB of every block's shared memory for the system.
    const std::uint64_t reserved = find(".nv.shared.reserved.0") != nullptr ? 1024 : 0;
    for (CubinKernel& kernel : out.kernels) {
      if (const Section* shared = find(".nv.shared." + kernel.name)) {
        const std::uint64_t size = shared->header.sh_size;
        if (size > max_shared_bytes) return false;
        kernel.shared_bytes = static_cast<std::uint32_t>(size >= reserved ? size - reserved : size);
      }
      const Section* const info = find(".nv.info." + kernel.name);
      if (info != nullptr && !read_kernel_info(kernel, info->content)) return false;
    }
    return true;
  }

  static bool read_block(Bytes payload, std::uint32_t (&out)[3]) {
    return read(payload, 0, out[0]) && read(payload, 4, out[1]) && read(payload, 8, out[2]);
  }

  static bool read_kernel_info(CubinKernel& kernel, Bytes bytes) {
    std::map<std::uint16_t, CubinParameter> parameters;
    const bool good = each_info(bytes, [&](Info info, std::uint16_t value, Bytes payload) {
      switch (info) {
        case Info::max_threads:
          return read_block(payload, kernel.max_block);
        case Info::required_threads:
          return read_block(payload, kernel.required_block);
        case Info::parameter_bytes:
          kernel.parameter_bytes = value;
          return true;
        case Info::parameter:
        case Info::large_parameter: {
          std::uint16_t ordinal = 0, offset = 0;
          std::uint32_t last = 0;
          if (!read(payload, 4, ordinal) || !read(payload, 6, offset) || !read(payload, 8, last))
            return false;
          const std::uint32_t size = info == Info::parameter ? last >> 18 : last & 0xffff;
          return parameters.emplace(ordinal, CubinParameter{offset, size}).second;
        }
        default:
          return true;
      }
    });
    if (!good || kernel.parameter_bytes > max_parameter_bytes) return false;
    std::uint32_t ordinal = 0;
    for (const auto& [number, parameter] : parameters) {
      if (number != ordinal++ || parameter.offset + parameter.size > kernel.parameter_bytes) return false;
      kernel.parameters.push_back(parameter);
    }
    return true;
  }

  Bytes bytes_;
  std::vector<Section> sections_;
  std::unordered_map<std::string_view, const Section*> by_name_;
  std::unordered_map<std::uint32_t, std::size_t> kernel_of_symbol_;
};

}  // namespace

std::optional<unsigned> cubin_architecture(Bytes bytes) {
  Elf64_Ehdr header;
  if (!read_header(bytes, header)) return std::nullopt;
  return architecture_of(header);
}

std::optional<Cubin> read_cubin(Bytes bytes) {
  Cubin cubin;
  if (!Reader(bytes).run(cubin)) return std::nullopt;
  return cubin;
}

}  // namespace gpupool::image
