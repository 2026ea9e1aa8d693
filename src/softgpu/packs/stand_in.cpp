#include "softgpu/packs/stand_in.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace softgpu::packs {
namespace {

using gpupool::image::CubinKernel;
using gpupool::image::CubinParameter;

constexpr std::uint32_t most_alignment = 16;

bool is_identifier(std::string_view name) {
  const auto follows = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '$'; };
  return !name.empty() && follows(name.front()) &&
         std::isdigit(static_cast<unsigned char>(name.front())) == 0 && std::ranges::all_of(name, follows);
}

// PTX places parameters one behind the other, each aligned: an alignment that the offset has and that leaves
// no other place. None if there is none.
std::uint32_t alignment_of(const CubinParameter& parameter, std::uint32_t end_of_last) {
  std::uint32_t alignment = 1;
  while (alignment < most_alignment &&
         (end_of_last + alignment - 1) / alignment * alignment < parameter.offset)
    alignment *= 2;
  return (end_of_last + alignment - 1) / alignment * alignment == parameter.offset ? alignment : 0;
}

bool add_parameters(const CubinKernel& kernel, std::string& text) {
  std::uint32_t end = 0;
  for (const CubinParameter& parameter : kernel.parameters) {
    const std::uint32_t alignment = alignment_of(parameter, end);
    if (alignment == 0 || parameter.size == 0) return false;
    text += (end == 0 ? "" : ", ") + std::string(".param .align ") + std::to_string(alignment) + " .b8 p" +
            std::to_string(parameter.offset) + '[' + std::to_string(parameter.size) + ']';
    end = parameter.offset + parameter.size;
  }
  return true;
}

std::string shape(const char* directive, const std::uint32_t (&block)[3]) {
  if (block[0] == 0) return {};
  return std::string(directive) + ' ' + std::to_string(block[0]) + ", " +
         std::to_string(std::max(block[1], 1U)) + ", " + std::to_string(std::max(block[2], 1U)) + '\n';
}

void add_kernel(const CubinKernel& kernel, std::string& text) {
  if (!is_identifier(kernel.name)) return;
  std::string made = ".visible .entry " + kernel.name + '(';
  if (!add_parameters(kernel, made)) return;
  made += ")\n" + shape(".maxntid", kernel.max_block) + shape(".reqntid", kernel.required_block) + "{\n";
  if (kernel.shared_bytes != 0)
    made += "  .shared .align 16 .b8 s[" + std::to_string(kernel.shared_bytes) +
            "];\n  .reg .u32 %r;\n  mov.u32 %r, s;\n";
  text += made + "  ret;\n}\n";
}

}  // namespace

std::string stand_in(const std::vector<const CubinKernel*>& kernels) {
  std::string text;
  for (const CubinKernel* const kernel : kernels) add_kernel(*kernel, text);
  if (!text.empty()) text.insert(0, ".version 8.0\n.target sm_50\n.address_size 64\n");
  return text;
}

}  // namespace softgpu::packs
