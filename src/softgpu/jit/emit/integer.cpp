// Integer arithmetic and logic.
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {
namespace {

constexpr int64_t most_offset = int64_t{1} << 30;

std::shared_ptr<const Offsets> combined(const Value& a, const Value& b, int64_t factor_of_b) {
  auto made = std::make_shared<Offsets>();
  bool any = false;
  for (uint32_t l = 0; l < warp_lanes; ++l) {
    const int64_t sum = (a.offsets ? (*a.offsets)[l] : 0) + factor_of_b * (b.offsets ? (*b.offsets)[l] : 0);
    if (sum > most_offset || sum < -most_offset) return nullptr;
    (*made)[l] = sum;
    any |= sum != 0;
  }
  return any ? made : nullptr;
}

}  // namespace

// Sums keep offsets.
Value Emitter::shifted_sum(const Value& a, const Value& b, bool subtract) {
  const std::string operation = subtract ? "sub " : "add ";
  if (a.scalar && b.scalar && a.literal && b.literal) {
    Value made = literal_value(a.size, subtract ? *a.literal - *b.literal : *a.literal + *b.literal);
    made.offsets = combined(a, b, subtract ? -1 : 1);
    const bool cancels = a.offsets && b.offsets && same_offsets(a.offsets, b.offsets) && subtract;
    if (made.offsets != nullptr || cancels || (!a.offsets && !b.offsets)) return made;
  }
  if (a.scalar && b.scalar && (a.offsets || b.offsets)) {
    Value made =
        scalar_value(a.size, set(operation + Form{true}.integer(a.size) + " " + a.text + ", " + b.text));
    made.offsets = combined(a, b, subtract ? -1 : 1);
    const bool cancels = a.offsets && b.offsets && same_offsets(a.offsets, b.offsets) && subtract;
    if (made.offsets != nullptr || cancels) return made;
  }
  return lanewise(a.size, {a, b}, [&](const Form& form, const std::vector<std::string>& s) {
    return set(operation + form.integer(a.size) + " " + s[0] + ", " + s[1]);
  });
}

// So do products with what is known when code is made.
Value Emitter::multiplied(const Value& a, const Value& b) {
  const Value& factor = a.literal && !a.offsets ? a : b;
  const Value& other = a.literal && !a.offsets ? b : a;
  if (factor.uniform() && factor.literal && other.uniform() && other.literal)
    return literal_value(a.size, *factor.literal * *other.literal);
  if (factor.uniform() && factor.literal && other.scalar && other.offsets) {
    const uint64_t bits = *factor.literal;
    const int64_t signed_factor = factor.size == 'w'   ? int64_t{static_cast<int32_t>(bits)}
                                  : factor.size == 'h' ? int64_t{static_cast<int16_t>(bits)}
                                                       : static_cast<int64_t>(bits);
    if (signed_factor > -most_offset && signed_factor < most_offset) {
      Value zero = literal_value(a.size, 0);
      const auto offsets = combined(zero, other, signed_factor);
      if (offsets != nullptr) {
        Value made = other.literal ? literal_value(a.size, *factor.literal * *other.literal)
                                   : scalar_value(a.size, set("mul " + Form{true}.integer(a.size) + " " +
                                                              other.text + ", " + factor.text));
        made.offsets = offsets;
        return made;
      }
    }
  }
  return lanewise(a.size, {a, b}, [&](const Form& form, const std::vector<std::string>& s) {
    return set("mul " + form.integer(a.size) + " " + s[0] + ", " + s[1]);
  });
}

// To a wider register. A scalar with offsets stays one if no lane wraps around; if one does, the interpreter
// goes on here.
Value Emitter::extended(const Value& a, char size, bool is_signed) {
  const Form one{true};
  const std::string word = is_signed ? "sext " : "zext ";
  if (a.scalar && a.offsets && !guarded_ && (a.size == 'w' || a.size == 'h')) {
    int64_t least = 0, most = 0;
    for (const int64_t offset : *a.offsets) {
      least = std::min(least, offset);
      most = std::max(most, offset);
    }
    const uint32_t bits = 8 * lane_bytes(a.size);
    const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
    const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
    if (most <= high && -least <= high && a.literal) {
      const int64_t value = is_signed ? static_cast<int64_t>(*a.literal << (64 - bits)) >> (64 - bits)
                                      : static_cast<int64_t>(*a.literal);
      if (value >= low - least && value <= high - most) {
        Value made = literal_value(size, static_cast<uint64_t>(value));
        made.offsets = a.offsets;
        return made;
      }
    } else if (most <= high && -least <= high) {
      const std::string wide = set(word + one.integer(a.size) + " " + a.text + " to i64");
      const std::string above = set("icmp sge i64 " + wide + ", " + std::to_string(low - least));
      const std::string below = set("icmp sle i64 " + wide + ", " + std::to_string(high - most));
      require(set("and i1 " + above + ", " + below));
      Value made =
          scalar_value(size, size == 'x' ? wide : set("trunc i64 " + wide + " to " + one.integer(size)));
      made.offsets = a.offsets;
      return made;
    }
  }
  return lanewise(size, {a}, [&](const Form& form, const std::vector<std::string>& s) {
    return set(word + form.integer(a.size) + " " + s[0] + " to " + form.integer(size));
  });
}

bool Emitter::emit_integer(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const IntegerType type = integer_type(name.last());
  if (type.size == 0 || in.list.size() != 0) return false;
  const char size = type.size;
  auto a = [&] { return use(in.in.op[in.defs]); };
  auto b = [&] { return use(in.in.op[in.defs + 1]); };
  auto c = [&] { return use(in.in.op[in.defs + 2]); };
  auto done = [&](const Value& value) {
    define(in.in.op[0], value);
    return true;
  };
  auto extremum = [&](const std::string& condition) {
    return done(lanewise(size, {a(), b()}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer(size);
      const std::string first = set("icmp " + condition + " " + t + " " + s[0] + ", " + s[1]);
      return set("select " + form.boolean() + " " + first + ", " + t + " " + s[0] + ", " + t + " " + s[1]);
    }));
  };
  const char wide = size == 'h' ? 'w' : 'x';
  if (name.is("add", 2)) return done(shifted_sum(a(), b(), false));
  if (name.is("sub", 2)) return done(shifted_sum(a(), b(), true));
  if (name.is("mul.lo", 3)) return done(multiplied(a(), b()));
  if (name.is("mad.lo", 3)) return done(shifted_sum(multiplied(a(), b()), c(), false));
  if (size != 'x' && (name.is("mul.wide", 3) || name.is("mad.wide", 3))) {
    const Value x = extended(a(), wide, type.is_signed), y = b();
    Value factor =
        y.literal && !y.offsets
            ? literal_value(
                  wide, type.is_signed
                            ? static_cast<uint64_t>(size == 'w' ? int64_t{static_cast<int32_t>(*y.literal)}
                                                                : int64_t{static_cast<int16_t>(*y.literal)})
                            : *y.literal)
            : extended(y, wide, type.is_signed);
    const Value product = multiplied(x, factor);
    return done(name.is("mul.wide", 3) ? product : shifted_sum(product, c(), false));
  }
  if (name.is("min", 2)) return extremum(type.is_signed ? "slt" : "ult");
  if (name.is("max", 2)) return extremum(type.is_signed ? "sgt" : "ugt");
  if (name.is("neg", 2)) return done(shifted_sum(literal_value(size, 0), a(), true));
  if (name.is("abs", 2)) {
    return done(lanewise(size, {a()}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer(size);
      const std::string negative = set("icmp slt " + t + " " + s[0] + ", " + form.literal(size, 0));
      const std::string flipped = set("sub " + t + " " + form.literal(size, 0) + ", " + s[0]);
      return set("select " + form.boolean() + " " + negative + ", " + t + " " + flipped + ", " + t + " " +
                 s[0]);
    }));
  }
  if (name.is("mul.hi", 3) && size == 'w') {
    return done(lanewise(size, {a(), b()}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer('w'), w = form.integer('x'),
                        word = type.is_signed ? "sext " : "zext ";
      const std::string x = set(word + t + " " + s[0] + " to " + w),
                        y = set(word + t + " " + s[1] + " to " + w);
      const std::string high =
          set("lshr " + w + " " + set("mul " + w + " " + x + ", " + y) + ", " + form.literal('x', 32));
      return set("trunc " + w + " " + high + " to " + t);
    }));
  }
  if (name.is("div", 2) || name.is("rem", 2)) {
    const Value x = a(), y = b();
    const bool remainder = name.is("rem", 2);
    if (x.uniform() && y.uniform()) return done(divided(x, y, type.is_signed, remainder));
    return size == 'w' && done(divided_in_lanes(x, y, type.is_signed, remainder));
  }
  return false;
}

bool Emitter::emit_bits(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const IntegerType type = integer_type(name.last());
  auto a = [&] { return use(in.in.op[in.defs]); };
  auto b = [&] { return use(in.in.op[in.defs + 1]); };
  auto done = [&](const Value& value) {
    define(in.in.op[0], value);
    return true;
  };
  const bool logic = name.is("and", 2) || name.is("or", 2) || name.is("xor", 2);
  if (name.last() == "pred" && (logic || name.is("not", 2) || name.is("mov", 2))) {
    const Value x = a();
    if (name.is("mov", 2)) return done(x);
    if (name.is("not", 2)) {
      return done(x.scalar ? scalar_value('p', set("xor i1 " + x.text + ", true"))
                           : vector_value('p', set("xor i32 " + x.text + ", -1")));
    }
    const Value y = b();
    const std::string operation = std::string(name.part(0)) + " ";
    if (x.scalar && y.scalar) return done(scalar_value('p', set(operation + "i1 " + x.text + ", " + y.text)));
    return done(vector_value('p', set(operation + "i32 " + predicate_mask(x) + ", " + predicate_mask(y))));
  }
  if (type.size == 0 || in.list.size() != 0) return false;
  const char size = type.size;
  const uint32_t bits = 8 * lane_bytes(size);
  if (logic) {
    return done(lanewise(size, {a(), b()}, [&](const Form& form, const std::vector<std::string>& s) {
      return set(std::string(name.part(0)) + " " + form.integer(size) + " " + s[0] + ", " + s[1]);
    }));
  }
  if (name.is("not", 2)) {
    return done(lanewise(size, {a()}, [&](const Form& form, const std::vector<std::string>& s) {
      return set("xor " + form.integer(size) + " " + s[0] + ", " + form.literal(size, ~uint64_t{0}));
    }));
  }
  if (name.is("shl", 2) || name.is("shr", 2)) {
    const bool left = name.is("shl", 2);
    const Value x = a(), n = b();
    if (n.literal && !n.offsets) {
      const uint64_t amount = *n.literal;
      if (left && amount < bits && amount < 30)
        return done(multiplied(x, literal_value(size, uint64_t{1} << amount)));
      const uint64_t shift = amount < bits ? amount : type.is_signed && !left ? bits - 1 : bits;
      if (shift >= bits) return done(literal_value(size, 0));
      return done(lanewise(size, {x}, [&](const Form& form, const std::vector<std::string>& s) {
        const char* const word = left ? "shl " : type.is_signed ? "ashr " : "lshr ";
        return set(word + form.integer(size) + " " + s[0] + ", " + form.literal(size, shift));
      }));
    }
    return done(lanewise(size, {x, n}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer(size), w = form.integer('w');
      const std::string inside = set("icmp ult " + w + " " + s[1] + ", " + form.literal('w', bits));
      const uint64_t limit = type.is_signed && !left ? bits - 1 : 0;
      std::string amount = set("select " + form.boolean() + " " + inside + ", " + w + " " + s[1] + ", " + w +
                               " " + form.literal('w', limit));
      if (size == 'x') amount = set("zext " + w + " " + amount + " to " + t);
      if (size == 'h') amount = set("trunc " + w + " " + amount + " to " + t);
      const char* const word = left ? "shl " : type.is_signed ? "ashr " : "lshr ";
      const std::string shifted = set(word + t + " " + s[0] + ", " + amount);
      if (type.is_signed && !left) return shifted;
      return set("select " + form.boolean() + " " + inside + ", " + t + " " + shifted + ", " + t + " " +
                 form.literal(size, 0));
    }));
  }
  const bool counts = name.is("popc", 2), leads = name.is("clz", 2);
  if (counts || leads) {
    return done(lanewise('w', {a()}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer(size), n = form.name('i', size);
      const std::string count =
          counts ? set("call " + t + " " + intrinsic(t, "ctpop." + n, t) + "(" + t + " " + s[0] + ")")
                 : set("call " + t + " " + intrinsic(t, "ctlz." + n, t + ", i1") + "(" + t + " " + s[0] +
                       ", i1 false)");
      return size == 'x' ? set("trunc " + t + " " + count + " to " + form.integer('w')) : count;
    }));
  }
  if (name.is("brev", 2)) {
    return done(lanewise(size, {a()}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string t = form.integer(size);
      return set("call " + t + " " + intrinsic(t, "bitreverse." + form.name('i', size), t) + "(" + t + " " +
                 s[0] + ")");
    }));
  }
  if (in.opcode == "lop3.b32") {
    const uint64_t table = static_cast<uint64_t>(in.in.immediate);
    return done(lanewise('w', {a(), b(), use(in.in.op[in.defs + 2])},
                         [&](const Form& form, const std::vector<std::string>& s) {
                           const std::string t = form.integer('w'), ones = form.literal('w', ~uint64_t{0});
                           std::string result = form.literal('w', 0);
                           for (uint32_t k = 0; k < 8; ++k) {
                             if (!(table >> k & 1)) continue;
                             std::string term = ones;
                             for (uint32_t j = 0; j < 3; ++j) {
                               const std::string v =
                                   k >> (2 - j) & 1 ? s[j] : set("xor " + t + " " + s[j] + ", " + ones);
                               term = set("and " + t + " " + term + ", " + v);
                             }
                             result = set("or " + t + " " + result + ", " + term);
                           }
                           return result;
                         }));
  }
  return false;
}

}  // namespace softgpu::jit
