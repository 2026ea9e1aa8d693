#include "image/variables.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>

#include "image/cubin.h"
#include "image/fatbin.h"
#include "image/ptx_declarations.h"

namespace gpupool::image {
std::vector<std::string> ptx_variables(std::string_view text) {
  std::vector<std::string> names;
  for (const PtxVariable& variable : ptx_declarations(text).variables) {
    if (!variable.reference) names.emplace_back(variable.name);
  }
  return names;
}

std::optional<std::vector<std::string>> variable_names(std::span<const std::byte> content) {
  const auto text = [&] {
    std::string_view all(reinterpret_cast<const char*>(content.data()), content.size());
    return all.substr(0, all.find('\0'));
  };
  if (const auto cubin = read_cubin(content)) {
    std::vector<std::string> names;
    for (const CubinVariable& variable : cubin->variables) names.push_back(variable.name);
    return names;
  }
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic != fatbin_magic) {
    const std::string_view ptx = text();
    if (ptx.find(".version") == std::string_view::npos) return std::nullopt;
    return ptx_variables(ptx);
  }
  std::set<std::string> names;
  bool readable = false;
  for (const FatbinEntry& entry : fatbin_entries(content)) {
    if (entry.kind == FatbinEntry::Kind::other) continue;
    const auto inside = entry.kind == FatbinEntry::Kind::ptx ? ptx_text(entry) : entry_content(entry);
    if (!inside) return std::nullopt;
    const auto of_entry = variable_names(std::as_bytes(std::span(*inside)));
    if (!of_entry) return std::nullopt;
    names.insert(of_entry->begin(), of_entry->end());
    readable = true;
  }
  if (!readable) return std::nullopt;
  return std::vector<std::string>(names.begin(), names.end());
}

namespace {

/// Whether `is` says so of an image, or of one of the entries of a fat binary. Its arguments are a cubin, or
/// PTX text.
template <class OfCubin, class OfText>
bool any_image(std::span<const std::byte> content, const OfCubin& of_cubin, const OfText& of_text) {
  if (cubin_architecture(content)) return of_cubin(content);
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic == fatbin_magic) {
    const auto entries = fatbin_entries(content);
    return std::any_of(entries.begin(), entries.end(), [&](const FatbinEntry& entry) {
      const auto inside = entry.kind == FatbinEntry::Kind::ptx ? ptx_text(entry) : entry_content(entry);
      return entry.kind != FatbinEntry::Kind::other && inside &&
             any_image(std::as_bytes(std::span(*inside)), of_cubin, of_text);
    });
  }
  const std::string_view bytes(reinterpret_cast<const char*>(content.data()), content.size());
  return of_text(bytes.substr(0, bytes.find('\0')));
}

}  // namespace

bool holds_addresses(std::span<const std::byte> content) {
  return any_image(
      content,
      [](std::span<const std::byte> bytes) {
        const auto cubin = read_cubin(bytes);
        return cubin && cubin->has_addresses;
      },
      [](std::string_view text) {
        const auto variables = ptx_declarations(text).variables;
        // What a sampler's value names are its settings.
        return std::ranges::any_of(
            variables, [](const PtxVariable& variable) { return variable.addresses && !variable.reference; });
      });
}

bool uses_device_heap(std::span<const std::byte> content) {
  return any_image(
      content,
      [](std::span<const std::byte> bytes) {
        // Its table of symbols has the name of what it does not define itself.
        const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return all.find(std::string_view("\0malloc\0", 8)) != std::string_view::npos;
      },
      [](std::string_view text) {
        if (text.find("malloc") == std::string_view::npos) return false;
        const auto functions = ptx_declarations(text).functions;
        return std::ranges::find(functions, "malloc") != functions.end();
      });
}

}  // namespace gpupool::image
