// Code that is left out because no lane has come there (FlowGraph): the interpreter executes it, and compiled
// code may be entered behind it.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

// Whether lanes agree on a value, and at which distances, is looked at when code is entered (put_on_stage);
// whether it is still the number that the code was made with is not. At the end, when all else is known: what
// is defined here and there is known from there.
void Emitter::expect_any_results_of_left_out() {
  Set entered(lowered_.registers.size());
  for (uint32_t b = 0; b < graph_.blocks.size(); ++b) {
    if (graph_.blocks[b].resumable) entered.add_all(with_pending(graph_.blocks[b].live_in, b));
  }
  auto expect_any = [&](uint32_t bits) {
    const uint32_t reg = Ref::from_bits(bits).index();
    Knowledge& known = knowledge_[reg];
    if (!entered.has(reg)) return;
    if (known.kind == Knowledge::Kind::nothing) return learn(reg, Value{});
    learned_ |= known.literal.has_value();
    known.literal.reset();
  };
  for (const CodeBlock& block : graph_.blocks) {
    if (!block.left_out) continue;
    for (uint32_t i = block.begin; i < block.end; ++i) {
      const LoweredInstruction& in = lowered_.code[i];
      for (uint32_t k = 0; k < in.defs; ++k) expect_any(in.in.op[k]);
      for (uint32_t k = 0; k < in.list_defs; ++k) expect_any(in.list[k]);
    }
  }
}

}  // namespace softgpu::jit
