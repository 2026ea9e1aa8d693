// Registers between compiled code and their homes in the warp's register file.
#include "softgpu/jit/emitter.h"

namespace softgpu::jit {

// For the lanes of this run; the others' stay as they are.
void Emitter::store_home(uint32_t reg) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const Value value = use(Ref::reg(reg).bits());
  const std::string home = home_pointer(tier_.home[reg]);
  if (size == 'p') {
    const std::string old = set("load i32, ptr " + home);
    const std::string change = set("xor i32 " + old + ", " + predicate_mask(value));
    line("store i32 " + set("xor i32 " + old + ", " + set("and i32 " + change + ", %owned")) + ", ptr " +
         home);
    return;
  }
  const Form all{false};
  const std::string type = all.integer(size);
  const std::string store =
      intrinsic("void", "masked.store." + all.name('i', size) + ".p0", type + ", ptr, i32, <32 x i1>");
  line("call void " + store + "(" + type + " " + vector(value) + ", ptr " + home +
       ", i32 64, <32 x i1> %owned_lanes)");
}

// Lanes that disagree where they should not are added to %mismatch.
void Emitter::load_home(uint32_t reg, const std::string&) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const std::string home = home_pointer(tier_.home[reg]);
  const std::string place = ", ptr " + variable(reg);
  const bool scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
  auto disagree = [&](const std::string& lanes) {
    line("store i32 " + set("or i32 " + set("load i32, ptr %mismatch") + ", " + lanes) + ", ptr %mismatch");
  };
  if (size == 'p') {
    const std::string word = set("load i32, ptr " + home);
    if (!scalar) return line("store i32 " + word + place);
    const std::string bit = set("trunc i32 " + set("lshr i32 " + word + ", %own") + " to i1");
    line("store i1 " + bit + place);
    return disagree(set("xor i32 " + word + ", " + set("sext i1 " + bit + " to i32")));
  }
  const Form one{true}, all{false};
  const std::string lanes = set("load " + all.integer(size) + ", ptr " + home);
  if (!scalar) return line("store " + all.integer(size) + " " + lanes + place);
  const std::string type = one.integer(size);
  std::string base =
      set("load " + type + ", ptr " + set("getelementptr " + type + ", ptr " + home + ", i64 %own64"));
  Value value = scalar_value(size, base);
  value.offsets = knowledge_[reg].offsets;
  if (value.offsets != nullptr) {
    const std::string table = fresh("@offsets.");
    std::string cells;
    for (uint32_t l = 0; l < kLanes; ++l)
      cells += (l ? ", " : "") + type + " " + one.literal(size, static_cast<uint64_t>((*value.offsets)[l]));
    globals_ += table + " = private unnamed_addr constant [32 x " + type + "] [" + cells + "]\n";
    const std::string hers =
        set("load " + type + ", ptr " + set("getelementptr " + type + ", ptr " + table + ", i64 %own64"));
    value.text = set("sub " + type + " " + base + ", " + hers);
  }
  line("store " + type + " " + value.text + place);
  disagree(mask_of_lanes(set("icmp ne " + all.integer(size) + " " + lanes + ", " + vector(value))));
}

// At a barrier that the whole warp reached: every register is this run's, and a scalar needs only one place.
void Emitter::store_parked(uint32_t reg) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const Value value = use(Ref::reg(reg).bits());
  const std::string place = ", ptr " + home_pointer(tier_.home[reg]);
  if (size == 'p') {
    line("store i32 " + predicate_mask(value) + place);
  } else {
    line("store " + Form{value.scalar}.integer(size) + " " + value.text + place);
  }
}

void Emitter::load_parked(uint32_t reg) {
  const char size = lowered_.registers[reg];
  if (size == 'q') return;
  const std::string place = ", ptr " + variable(reg), home = ", ptr " + home_pointer(tier_.home[reg]);
  const bool scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
  if (size == 'p' && scalar) {
    return line("store i1 " + set("trunc i32 " + set("load i32" + home) + " to i1") + place);
  }
  const std::string type = type_of(reg);
  line("store " + type + " " + set("load " + type + home) + place);
}

}  // namespace softgpu::jit
