// Registers and constants as values.
#include <bit>

#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

std::string Emitter::variable(uint32_t reg) const {
  return "%r" + std::to_string(reg);
}
std::string Emitter::type_of(uint32_t reg) const {
  const char size = lowered_.registers[reg];
  const bool scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
  if (size == 'p') return scalar ? "i1" : "i32";
  return Form{scalar}.integer(size);
}
char Emitter::operand_size(uint32_t bits) const {
  const Ref ref = Ref::from_bits(bits);
  if (!ref.is_constant()) return lowered_.registers[ref.index()];
  const uint32_t bytes = lowered_.constants[ref.index()].lane_bytes;
  return bytes == 2 ? 'h' : bytes == 4 ? 'w' : bytes == 8 ? 'x' : 'q';
}

Value Emitter::scalar_value(char size, const std::string& text) {
  Value made;
  made.size = size;
  made.scalar = true;
  made.text = text;
  return made;
}
Value Emitter::vector_value(char size, const std::string& text) {
  Value made;
  made.size = size;
  made.text = text;
  return made;
}
Value Emitter::literal_value(char size, uint64_t value) {
  Value made = scalar_value(size, Form{true}.literal(size, value));
  made.literal = size == 'h' ? value & 0xffff : size == 'w' ? value & 0xffffffff : value;
  return made;
}

Value Emitter::use(uint32_t bits) {
  const Ref ref = Ref::from_bits(bits);
  if (ref.is_constant()) return constant(ref.index());
  const uint32_t reg = ref.index();
  Value made;
  made.size = lowered_.registers[reg];
  made.scalar = knowledge_[reg].kind != Knowledge::Kind::vector;
  made.offsets = knowledge_[reg].offsets;
  if (made.scalar && knowledge_[reg].literal && made.size != 'p') {
    made = literal_value(made.size, *knowledge_[reg].literal);
    made.offsets = knowledge_[reg].offsets;
    return made;
  }
  made.text = set("load " + type_of(reg) + ", ptr " + variable(reg));
  return made;
}

std::string Emitter::splat(char size, const std::string& scalar) {
  const Form one{true}, all{false};
  const std::string first =
      set("insertelement " + all.integer(size) + " poison, " + one.integer(size) + " " + scalar + ", i32 0");
  return set("shufflevector " + all.integer(size) + " " + first + ", " + all.integer(size) +
             " poison, <32 x i32> zeroinitializer");
}

std::string Emitter::vector(const Value& value) {
  if (!value.scalar) return value.text;
  const Form all{false};
  if (value.literal && !value.offsets) return all.literal(value.size, *value.literal);
  const std::string base = splat(value.size, value.text);
  if (!value.offsets) return base;
  std::string offsets = "<";
  const std::string type = Form{true}.integer(value.size);
  for (uint32_t i = 0; i < warp_lanes; ++i) {
    const auto bits = static_cast<uint64_t>((*value.offsets)[i]);
    offsets += (i ? ", " : "") + type + " " + Form{true}.literal(value.size, bits);
  }
  return set("add " + all.integer(value.size) + " " + base + ", " + offsets + ">");
}

std::string Emitter::lanes_of_mask(const std::string& mask) {
  return set("bitcast i32 " + mask + " to <32 x i1>");
}
std::string Emitter::mask_of_lanes(const std::string& lanes) {
  return set("bitcast <32 x i1> " + lanes + " to i32");
}
std::string Emitter::predicate_mask(const Value& value) {
  return value.scalar ? set("sext i1 " + value.text + " to i32") : value.text;
}
std::string Emitter::first_lane(const std::string& mask) {
  return set("call i32 " + intrinsic("i32", "cttz.i32", "i32, i1") + "(i32 " + mask + ", i1 false)");
}

// Thread indices of a block whose shape is known: offsets within the warp, and where the warp begins.
Value Emitter::thread_index(SpecialRegister which, char size) {
  const uint32_t x = block_.x, y = block_.y;
  const uint32_t axis = which == SpecialRegister::tid_x ? 0 : which == SpecialRegister::tid_y ? 1 : 2;
  const uint32_t below = axis == 0 ? 1 : axis == 1 ? x : x * y;
  const uint32_t extent = axis == 0 ? x : axis == 1 ? y : block_.z;
  const bool last_axis = axis == 2 || (axis == 1 && block_.z == 1) || (axis == 0 && y == 1 && block_.z == 1);
  auto lane_index = [&](uint32_t thread) { return thread / below % extent; };
  // index(32 w + l) = base(w) + offset(l) when a warp neither wraps nor carries into this axis.
  const bool whole = below % warp_lanes == 0;  // all lanes agree
  const bool contained = warp_lanes % below == 0 && (last_axis || extent % (warp_lanes / below) == 0 ||
                                                     (warp_lanes / below) % extent == 0);
  if (extent == 1) return literal_value(size, 0);
  const auto narrow = [&](const std::string& word) {
    return size == 'w'   ? word
           : size == 'x' ? set("zext i32 " + word + " to i64")
                         : set("trunc i32 " + word + " to i16");
  };
  if (!whole && !contained) return Value{};
  const std::string first = set("shl i32 %warp_index, 5");
  std::string base = below == 1 ? first : set("udiv i32 " + first + ", " + std::to_string(below));
  if (!last_axis) base = set("urem i32 " + base + ", " + std::to_string(extent));
  Value made = scalar_value(size, narrow(base));
  if (!whole) {
    auto offsets = std::make_shared<Offsets>();
    const bool wraps = !last_axis && (warp_lanes / below) % extent == 0;
    for (uint32_t l = 0; l < warp_lanes; ++l) (*offsets)[l] = wraps ? lane_index(l) : l / below;
    if (wraps) made = literal_value(size, 0);
    made.offsets = offsets;
  }
  return made;
}

ReadConstants Emitter::read_constants() const {
  ReadConstants made;
  for (uint32_t c = 0; c < constant_used_.size(); ++c) {
    if (constant_used_[c]) made.of_first.push_back(c);
    // What is wider than a register handlers read where it is.
    if (constant_of_each_warp_[c] || lowered_.constants[c].lane_bytes == 16) made.of_each.push_back(c);
  }
  return made;
}
Value Emitter::constant(uint32_t index) {
  using S = SpecialRegister;
  const Constant& constant = tier_.function.constants[index];
  const char size = operand_size(Ref::constant(index).bits());
  const auto load = [&] {
    constant_used_[index] = true;
    return scalar_value(size, "%k" + std::to_string(index));
  };
  const auto of_each_warp = [&] {
    constant_of_each_warp_[index] = true;
    return vector_value(size, set("load " + Form{false}.integer(size) + ", ptr " +
                                  home_pointer(constant.offset) + ", !invariant.load !0"));
  };
  const auto per_lane = [&](auto of_lane) {
    Value made = literal_value(size, 0);
    auto offsets = std::make_shared<Offsets>();
    for (uint32_t l = 0; l < warp_lanes; ++l) (*offsets)[l] = of_lane(l);
    made.offsets = offsets;
    return made;
  };
  const auto sized = [&](const std::string& word) {
    return scalar_value(size, size == 'w'   ? word
                              : size == 'x' ? set("zext i32 " + word + " to i64")
                                            : set("trunc i32 " + word + " to i16"));
  };
  switch (constant.kind) {
    case Constant::Kind::immediate:
      return literal_value(size, constant.value);
    case Constant::Kind::shared:
      return literal_value(size, constant.value + kernel_.shared_offsets.at(constant.symbol));
    case Constant::Kind::dynamic_shared:
      return literal_value(size, constant.value + kernel_.dynamic_shared_offset);
    case Constant::Kind::special:
      break;
    default:
      return load();
  }
  switch (constant.special) {
    case S::tid_x:
    case S::tid_y:
    case S::tid_z: {
      Value made = thread_index(constant.special, size);
      if (!made.text.empty()) return made;
      return of_each_warp();
    }
    case S::ntid_x:
      return literal_value(size, block_.x);
    case S::ntid_y:
      return literal_value(size, block_.y);
    case S::ntid_z:
      return literal_value(size, block_.z);
    case S::ctaid_x:
      return sized("%ctaid0");
    case S::ctaid_y:
      return sized("%ctaid1");
    case S::ctaid_z:
      return sized("%ctaid2");
    case S::warpid:
      return sized("%warp_index");
    case S::laneid:
      return per_lane([](uint32_t l) { return int64_t{l}; });
    case S::lanemask_eq:
    case S::lanemask_le:
    case S::lanemask_lt:
    case S::lanemask_ge:
    case S::lanemask_gt:
      return of_each_warp();
    case S::zero:
    case S::zero64:
      return literal_value(size, 0);
    case S::one:
      return literal_value(size, 1);
    default:
      return load();
  }
}

void Emitter::learn(uint32_t reg, const Value& value) {
  Knowledge& known = knowledge_[reg];
  using K = Knowledge::Kind;
  if (known.kind == K::vector) return;
  if (!value.scalar) {
    known = {K::vector, nullptr, {}};
  } else if (known.kind == K::nothing) {
    known = {K::scalar, value.offsets, value.literal};
  } else if (!same_offsets(known.offsets, value.offsets)) {
    known = {K::vector, nullptr, {}};
  } else if (known.literal && known.literal != value.literal) {
    known.literal.reset();
  } else {
    return;
  }
  learned_ = true;
}

// Would writing lanes that do not run this block change a value that they still need?
bool Emitter::needs_select(uint32_t reg) const {
  for (const uint32_t b : pending_[current_block_].members()) {
    if (graph_.blocks[b].live_in.has(reg)) return true;
  }
  return false;
}

void Emitter::define(uint32_t bits, const Value& value) {
  const uint32_t reg = Ref::from_bits(bits).index();
  const char size = lowered_.registers[reg];
  std::erase_if(checked_, [&](const Checked& known) { return known.base == bits; });
  if (size == 'q') return;  // lives in memory
  const bool some_lanes = (guarded_ && !guard_.scalar) || needs_select(reg);
  Value all;
  all.size = size;
  learn(reg, some_lanes ? all : value);
  const std::string place = ", ptr " + variable(reg);
  if (knowledge_[reg].kind != Knowledge::Kind::vector) {
    std::string text = value.text;
    const std::string type = type_of(reg);
    if (guarded_) {
      const std::string old = set("load " + type + place);
      text = set("select i1 " + guard_.text + ", " + type + " " + text + ", " + type + " " + old);
    }
    return line("store " + type + " " + text + place);
  }
  const std::string type = type_of(reg);
  std::string text = size == 'p' ? predicate_mask(value) : vector(value);
  if (some_lanes || guarded_) {
    const std::string old = set("load " + type + place);
    if (size == 'p') {
      // old ^ ((old ^ new) & mask)
      const std::string change = set("xor i32 " + old + ", " + text);
      text = set("xor i32 " + old + ", " + set("and i32 " + change + ", " + mask_));
    } else {
      text = set("select <32 x i1> " + lanes_of_mask(mask_) + ", " + type + " " + text + ", " + type + " " +
                 old);
    }
  }
  line("store " + type + " " + text + place);
}

}  // namespace softgpu::jit
