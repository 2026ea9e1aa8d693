// What the software GPU does with a program before it runs it: parser, linker, lowering, its variables'
// memory, and tier 1's text. A record separator (0x1e) in the input begins another source of the program; one
// as the first byte asks for a program with checks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "softgpu/exec/program/engine.h"

namespace {

constexpr char record_separator = 0x1e;
constexpr std::size_t most_storage = 1 << 20;

std::vector<std::string_view> sources_of(std::string_view input) {
  std::vector<std::string_view> sources;
  for (;;) {
    const std::size_t end = input.find(record_separator);
    sources.push_back(input.substr(0, end));
    if (end == std::string_view::npos) return sources;
    input.remove_prefix(end + 1);
  }
}

// Its variables get memory of exactly their size, so that a step outside is seen.
void place_variables(const std::shared_ptr<const softgpu::Program>& program) {
  std::size_t left = most_storage;
  const auto allocate = [&](std::size_t size, std::size_t alignment) -> std::uint64_t {
    if (size > left || alignment > most_storage) return 0;
    left -= size;
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) return 0;
    return reinterpret_cast<std::uint64_t>(memory);
  };
  const auto free = [](std::uint64_t address, std::size_t) { std::free(reinterpret_cast<void*>(address)); };
  const auto image = softgpu::Image::create(program, {allocate, free});
  if (image == nullptr) return;
  for (const softgpu::GlobalInfo& global : program->globals()) {
    if (!image->global(global.name)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool checked = input.starts_with(record_separator);
  if (checked) input.remove_prefix(1);
  const auto result = softgpu::compile(sources_of(input), {checked, checked, checked, checked});
  if ((result.status == softgpu::CompileStatus::ok) != (result.program != nullptr)) std::abort();
  if (result.program != nullptr) place_variables(result.program);
  return 0;
}
