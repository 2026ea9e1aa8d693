// What tier 1 makes of a program before LLVM sees it: blocks, liveness, the text. It takes far more time than
// reading the program (ptx.cpp), so only small kernels are tried.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "softgpu/exec/program/engine.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/jit/emit/emitter.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace softgpu::jit;
  constexpr std::size_t most_instructions = 100;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto result = softgpu::compile(std::span(&source, 1));
  if (result.program == nullptr) return 0;
  for (const softgpu::Kernel& kernel : result.program->parts().kernels) {
    const softgpu::Function& original = result.program->parts().functions[kernel.function];
    if (original.lowered->code.size() > most_instructions) continue;
    const TierFunction tier(*original.lowered, original);
    const FlowGraph graph(*original.lowered);
    Emitter emitter(graph, tier, kernel, {33, 2, 1});
    // The name is replaced by one that the text decides.
    if (emitter.run("kernel").value().find("@kernel(") == std::string::npos) std::abort();
  }
  return 0;
}
