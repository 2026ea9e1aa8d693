// Registers between compiled code and the warp's register file.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

std::vector<SavedRegister> Emitter::saved(const Set& registers) const {
  std::vector<SavedRegister> made;
  for (const uint32_t reg : registers.members()) {
    const char size = lowered_.registers[reg];
    if (size == 'q') continue;
    const bool scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
    if (!scalar && size != 'p') continue;
    made.push_back(SavedRegister{size, scalar, tier_.home[reg], tier_.stage[reg], knowledge_[reg].offsets});
  }
  return made;
}

// `whole_warp`: every lane is this run's. Otherwise the others' registers stay as they are.
void Emitter::put_away(uint32_t reg, bool whole_warp) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const Value value = use(Ref::reg(reg).bits());
  if (size == 'p' || value.scalar) {
    const std::string stage = home_pointer(tier_.stage[reg]);
    const std::string text = size == 'p' ? predicate_mask(value) : value.text;
    return line("store " + Form{true}.integer(size == 'p' ? 'w' : size) + " " + text + ", ptr " + stage);
  }
  const Form all{false};
  const std::string type = all.integer(size), home = home_pointer(tier_.home[reg]);
  if (whole_warp) return line("store " + type + " " + value.text + ", ptr " + home + ", align 64");
  const std::string owned = lanes_of_mask(set("load i32, ptr %owned"));
  const std::string store =
      intrinsic("void", "masked.store." + all.name('i', size) + ".p0", type + ", ptr, i32, <32 x i1>");
  line("call void " + store + "(" + type + " " + value.text + ", ptr " + home + ", i32 64, <32 x i1> " +
       owned + ")");
}

void Emitter::take_out(uint32_t reg) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const std::string place = ", ptr " + variable(reg);
  const bool scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
  const std::string from = home_pointer(size == 'p' || scalar ? tier_.stage[reg] : tier_.home[reg]);
  if (size == 'p') {
    const std::string word = set("load i32, ptr " + from);
    return line("store " + (scalar ? "i1 " + set("trunc i32 " + word + " to i1") : "i32 " + word) + place);
  }
  const std::string type = type_of(reg);
  line("store " + type + " " + set("load " + type + ", ptr " + from + ", align " + (scalar ? "8" : "64")) +
       place);
}

}  // namespace softgpu::jit
