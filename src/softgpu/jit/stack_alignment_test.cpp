// Kernels that may keep vectors on the stack align it; the others keep the register that this takes.
#include "doctest/doctest.h"
#include "softgpu/exec/program/engine.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/exec/test/engine_test_support.h"
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {
namespace {

// Reads so many values in each lane, and then adds them.
std::string text_of_kernel_with(unsigned values) {
  std::string body;
  for (unsigned k = 0; k < values; ++k) {
    const std::string number = std::to_string(k);
    body += "ld.global.u32 %r" + number + ", [%x+" + number + "];\n";
  }
  for (unsigned k = 1; k < values; ++k) body += "add.u32 %r0, %r0, %r" + std::to_string(k) + ";\n";
  const std::string source = testing::ptx_header + ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<" +
                             std::to_string(values) +
                             ">, %tid; .reg .b64 %x;\nld.param.u64 %x, [p]; mov.u32 %tid, %tid.x;\n"
                             "mad.wide.u32 %x, %tid, 4, %x;\n" +
                             body + "st.global.u32 [%x], %r0;\nret;\n}\n";
  const std::string_view sources[] = {source};
  const auto result = compile(sources);
  INFO(result.log);
  REQUIRE(result.program != nullptr);
  const Kernel& kernel = result.program->parts().kernels.at(0);
  const Function& original = result.program->parts().functions[kernel.function];
  const TierFunction tier(*original.lowered, original);
  const FlowGraph graph(*original.lowered);
  return Emitter(graph, tier, kernel, {32, 1, 1}).run("kernel").value();
}

bool aligns_its_stack(const std::string& text) {
  return text.find("alignstack=64") != std::string::npos;
}

TEST_CASE("a kernel aligns its stack where its vectors outnumber the processor's registers") {
  CHECK(!aligns_its_stack(text_of_kernel_with(8)));
  CHECK(aligns_its_stack(text_of_kernel_with(100)));
}

}  // namespace
}  // namespace softgpu::jit
