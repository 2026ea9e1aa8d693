// The ways out to the interpreter: at an instruction without compiled code, where a condition does not hold,
// and where code is left out because no lane has come there (FlowGraph). Compiled code may be entered behind
// each.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

uint32_t Emitter::exit_table(const Set& registers) {
  exits_.push_back(saved(registers));
  return static_cast<uint32_t>(exits_.size() - 1);
}

// A basic block has one way out to the interpreter, for all its instructions.
std::string Emitter::leaving() {
  leaves_ = true;
  leaving_live_.add_all(with_pending(graph_.live_before(current_block_, current_), current_block_));
  line("store i32 " + number(current_) + ", ptr %stop_pc");
  return "leave." + number(current_block_);
}

void Emitter::emit_leaving(uint32_t b) {
  std::string kept = std::move(text_);
  text_.clear();
  label("leave." + number(b));
  for (const uint32_t reg : leaving_live_.members()) put_away(reg, false);
  for (const uint32_t q : pending_[b].members()) {
    const std::string at = set("getelementptr i32, ptr %masks, i64 " + number(q));
    line("store i32 " + set("load i32, ptr %mask." + number(q)) + ", ptr " + at);
  }
  auto tell = [&](size_t offset, const std::string& value) {
    line("store i32 " + value + ", ptr " + set("getelementptr i8, ptr %ctx, i64 " + number(offset)));
  };
  tell(offsetof(RunContext, exit_pc), set("load i32, ptr %stop_pc"));
  tell(offsetof(RunContext, exit_mask), block_mask_);
  tell(offsetof(RunContext, exit_table), number(exit_table(leaving_live_)));
  leave(number(outcome_interpret));
  cold_ += text_;
  text_ = std::move(kept);
}

void Emitter::require(const std::string& holds) {
  const std::string on = fresh("on."), off = leaving();
  line("br i1 " + holds + ", label %" + on + ", label %" + off + ", !prof !1");
  label(on);
}

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
