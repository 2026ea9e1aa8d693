// The software GPU's front end: parser, linker, lowering.
#include <cstdint>
#include <span>
#include <string_view>

#include "softgpu/exec/engine.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto result = softgpu::compile(std::span(&source, 1));
  if ((result.status == softgpu::CompileStatus::ok) != (result.program != nullptr)) __builtin_trap();
  return 0;
}
