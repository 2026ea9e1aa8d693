// One instruction: its guard, code of its own or the interpreter's handler.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

void Emitter::emit_instruction(uint32_t i) {
  const LoweredInstruction& in = lowered_.code[i];
  current_ = i;
  mask_ = block_mask_;
  guarded_ = in.guarded;
  if (guarded_) {
    guard_ = use(Ref::reg(in.guard).bits());
    if (in.guard_negated) {
      guard_.text =
          guard_.scalar ? set("xor i1 " + guard_.text + ", true") : set("xor i32 " + guard_.text + ", -1");
    }
    mask_ = guard_.scalar ? set("select i1 " + guard_.text + ", i32 " + block_mask_ + ", i32 0")
                          : set("and i32 " + block_mask_ + ", " + guard_.text);
  }
  if (in.opcode == "@ret" || in.opcode == "exit") {
    line("store i32 " + set("or i32 " + set("load i32, ptr %exited") + ", " + mask_) + ", ptr %exited");
  } else if (treatment(in) == Treatment::converge) {
    emit_converge(in);
  } else if (!emit_move(in) && !emit_integer(in) && !emit_bits(in) && !emit_float(in) && !emit_compare(in) &&
             !emit_convert(in) && !emit_memory(in) && !emit_warp(in)) {
    emit_call(in);
  }
  guarded_ = false;
}

// The handler works on the scratch area: sources are put there, results taken from there.
void Emitter::call_handler(const LoweredInstruction& in) {
  auto give = [&](uint32_t bits, uint32_t place) {
    const char size = operand_size(bits);
    if (size == 'q') return;
    const Value value = use(bits);
    const std::string at = ", ptr " + home_pointer(place);
    if (size == 'p') {
      line("store i32 " + predicate_mask(value) + at);
    } else {
      line("store " + Form{false}.integer(size) + " " + vector(value) + at + ", align 64");
    }
  };
  const uint32_t operands = uint32_t{in.defs} + in.uses;
  for (uint32_t k = in.defs; k < operands; ++k) give(in.in.op[k], tier_.operand_place(k));
  for (uint32_t k = in.list_defs; k < in.list.size(); ++k) give(in.list[k], tier_.list_place(k));
  const std::string at =
      set("getelementptr i8, ptr %calls, i64 " + std::to_string(size_t{current_} * sizeof(Instruction)));
  line("call void %call(ptr %warp, ptr " + at + ", i32 " + mask_ + ")");
}

Value Emitter::called_operand(char size, uint32_t place) {
  const std::string type = size == 'p' ? "i32" : Form{false}.integer(size);
  return vector_value(size, set("load " + type + ", ptr " + home_pointer(place)));
}

void Emitter::emit_call(const LoweredInstruction& in) {
  keep_registers_at_hand();
  const std::string work = fresh("call."), after = fresh("called.");
  // A guard that no lane passes: handlers expect at least one.
  if (guarded_) {
    line("br i1 " + set("icmp ne i32 " + mask_ + ", 0") + ", label %" + work + ", label %" + after);
    label(work);
  }
  call_handler(in);
  for (uint32_t k = 0; k < in.defs; ++k) {
    const char size = operand_size(in.in.op[k]);
    if (size != 'q') define(in.in.op[k], called_operand(size, tier_.operand_place(k)));
  }
  for (uint32_t k = 0; k < in.list_defs; ++k) {
    const char size = operand_size(in.list[k]);
    if (size != 'q') define(in.list[k], called_operand(size, tier_.list_place(k)));
  }
  if (guarded_) {
    line("br label %" + after);
    label(after);
  }
}

}  // namespace softgpu::jit
