#include "image/footprint.h"

#include <algorithm>
#include <cstring>

#include "image/cubin.h"
#include "image/fatbin.h"
#include "image/ptx_declarations.h"

namespace gpupool::image {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Footprint of_cubin(std::span<const std::byte> content) {
  const auto cubin = read_cubin(content);
  if (!cubin) return {content.size(), false};
  return {std::min(cubin->device_bytes, most_ptx_bytes), cubin->has_managed};
}

}  // namespace

Footprint ptx_footprint(std::string_view text) {
  Footprint total;
  for (const PtxVariable& variable : ptx_declarations(text).variables) {
    total.bytes = std::min(most_ptx_bytes, total.bytes + variable.bytes);
    total.managed_memory = total.managed_memory || variable.managed;
  }
  return total;
}

Footprint footprint(std::span<const std::byte> content, unsigned capability) {
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic == fatbin_magic) {
    const int device = static_cast<int>(capability);
    if (const auto code = best_machine_code(content, device)) return of_cubin(bytes_of(*code));
    if (const auto text = best_ptx(content, device)) return ptx_footprint(*text);
    return {content.size(), false};
  }
  if (magic == 0x464c457f) return of_cubin(content);  // "\x7fELF"
  return ptx_footprint({reinterpret_cast<const char*>(content.data()), content.size()});
}

}  // namespace gpupool::image
