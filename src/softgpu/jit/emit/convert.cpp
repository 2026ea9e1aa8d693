// mov, pack, unpack, widening and narrowing, cvt.
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {
namespace {

struct Type {
  char kind = 0;  // s u f; 0: none of these
  uint32_t bits = 0;
  [[nodiscard]] char size() const { return bits <= 16 ? 'h' : bits == 32 ? 'w' : 'x'; }
};
Type type_named(std::string_view name) {
  if (name.size() < 2 || (name[0] != 's' && name[0] != 'u' && name[0] != 'f')) return {};
  const std::string_view digits = name.substr(1);
  const uint32_t bits = digits == "8"    ? 8
                        : digits == "16" ? 16
                        : digits == "32" ? 32
                        : digits == "64" ? 64
                                         : 0;
  if (bits == 0 || (name[0] == 'f' && bits < 32)) return {};
  return {name[0], bits};
}

}  // namespace

bool Emitter::emit_move(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const std::string_view base = name.part(0);
  auto element = [&](size_t k) { return name.part(k).empty() ? '?' : name.part(k)[0]; };
  if (base == "mov" || (base == "cvta" && in.is_copy)) {
    const char size = operand_size(in.in.op[0]);
    if (size == 'p' || size == 'q' || name.size() < 2) return false;
    define(in.in.op[0], use(in.in.op[1]));
    return true;
  }
  if (base == "@zext" || base == "@sext") {
    define(in.in.op[0], extended(use(in.in.op[1]), element(2), base == "@sext"));
    return true;
  }
  if (base == "@trunc") {
    const char from = element(1), to = element(2);
    const Value a = use(in.in.op[1]);
    Value result;
    if (a.scalar) {  // of a sum, the sum
      result = scalar_value(
          to, set("trunc " + Form{true}.integer(from) + " " + a.text + " to " + Form{true}.integer(to)));
      result.offsets = a.offsets;
    } else {
      result = vector_value(
          to, set("trunc " + Form{false}.integer(from) + " " + a.text + " to " + Form{false}.integer(to)));
    }
    define(in.in.op[0], result);
    return true;
  }
  if (base != "@pack" && base != "@unpack") return false;
  const char part = element(1), whole = element(2);
  if (whole == 'q' || part == 'b') return false;
  const uint32_t bits = 8 * lane_bytes(part);
  if (base == "@unpack") {
    const Value a = use(in.in.op[0]);
    std::vector<Value> parts;
    for (uint32_t k = 0; k < in.list.size(); ++k) {
      parts.push_back(lanewise(part, {a}, [&](const Form& form, const std::vector<std::string>& s) {
        const std::string t = form.integer(whole);
        const std::string moved =
            k == 0 ? s[0] : set("lshr " + t + " " + s[0] + ", " + form.literal(whole, uint64_t{bits} * k));
        return set("trunc " + t + " " + moved + " to " + form.integer(part));
      }));
    }
    for (uint32_t k = 0; k < in.list.size(); ++k) define(in.list[k], parts[k]);
    return true;
  }
  Value result = literal_value(whole, 0);
  for (uint32_t k = 0; k < in.list.size(); ++k) {
    result =
        lanewise(whole, {result, use(in.list[k])}, [&](const Form& form, const std::vector<std::string>& s) {
          const std::string t = form.integer(whole);
          std::string wide = set("zext " + form.integer(part) + " " + s[1] + " to " + t);
          if (k != 0) wide = set("shl " + t + " " + wide + ", " + form.literal(whole, uint64_t{bits} * k));
          return set("or " + t + " " + s[0] + ", " + wide);
        });
  }
  define(in.in.op[0], result);
  return true;
}

bool Emitter::emit_convert(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  if (name.part(0) != "cvt" || in.defs != 1 || in.uses != 1) return false;
  const Type to = type_named(name.part(name.size() - 2)), from = type_named(name.last());
  if (to.kind == 0 || from.kind == 0) return false;
  std::string rounding;
  bool ftz = false;
  for (size_t k = 1; k + 2 < name.size(); ++k) {
    const std::string_view part = name.part(k);
    if (part == "ftz")
      ftz = true;
    else if (rounding.empty() && part.size() >= 2 && part[0] == 'r')
      rounding = part;
    else
      return false;
  }
  const Value a = use(in.in.op[1]);
  const char from_size = from.size(), to_size = to.size();
  if (a.size != from_size || operand_size(in.in.op[0]) != to_size) return false;
  const bool from_float = from.kind == 'f', to_float = to.kind == 'f';
  auto done = [&](const Value& value) {
    define(in.in.op[0], value);
    return true;
  };
  if (!from_float && !to_float) {
    if (!rounding.empty() || ftz) return false;
    // Registers of 8 bits have lanes of 16, extended by their sign.
    if (from.bits > 8 && to.bits > 8) {
      if (to.bits > from.bits) return done(extended(a, to_size, from.kind == 's'));
      if (to.bits == from.bits) return done(a);
      if (a.scalar) {
        Value result = scalar_value(to_size, set("trunc " + Form{true}.integer(from_size) + " " + a.text +
                                                 " to " + Form{true}.integer(to_size)));
        result.offsets = a.offsets;
        return done(result);
      }
    }
    return done(lanewise(to_size, {a}, [&](const Form& form, const std::vector<std::string>& s) {
      auto type = [&](uint32_t bits) {
        return form.scalar ? "i" + std::to_string(bits) : "<32 x i" + std::to_string(bits) + ">";
      };
      auto resized = [&](const std::string& text, uint32_t have, uint32_t want, bool is_signed) {
        if (have == want) return text;
        const std::string word = have > want ? "trunc " : is_signed ? "sext " : "zext ";
        return set(word + type(have) + " " + text + " to " + type(want));
      };
      std::string value = resized(s[0], 8 * lane_bytes(from_size), from.bits, false);
      value = resized(value, from.bits, to.bits, from.kind == 's');
      return resized(value, to.bits, 8 * lane_bytes(to_size), to.kind == 's');
    }));
  }
  if (!from_float) {
    if (rounding != "rn" || ftz || from.bits == 8) return false;
    return done(lanewise(to_size, {a}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string f = form.floating(to_size);
      const std::string value =
          set((from.kind == 's' ? "sitofp " : "uitofp ") + form.integer(from_size) + " " + s[0] + " to " + f);
      return set("bitcast " + f + " " + value + " to " + form.integer(to_size));
    }));
  }
  if (to_float) {
    const bool widens = to.bits > from.bits && rounding.empty(),
               narrows = to.bits < from.bits && rounding == "rn";
    if (ftz || (!widens && !narrows)) return false;
    return done(lanewise(to_size, {a}, [&](const Form& form, const std::vector<std::string>& s) {
      const std::string f = form.floating(from_size), d = form.floating(to_size);
      const std::string value = set("bitcast " + form.integer(from_size) + " " + s[0] + " to " + f);
      const std::string converted = set((widens ? "fpext " : "fptrunc ") + f + " " + value + " to " + d);
      return set("bitcast " + d + " " + converted + " to " + form.integer(to_size));
    }));
  }
  if (rounding != "rzi" || to.bits < 32) return false;
  return done(lanewise(to_size, {a}, [&](const Form& form, const std::vector<std::string>& s) {
    // NaN -> 0, or the highest bit where 64 bits take part; out of range -> the nearest that there is.
    const std::string f = form.floating(from_size), t = form.integer(to_size);
    const std::string bits = ftz && from.bits == 32 ? flushed(form, s[0]) : s[0];
    const std::string value = set("bitcast " + form.integer(from_size) + " " + bits + " to " + f);
    const std::string convert = std::string(to.kind == 's' ? "fptosi" : "fptoui") + ".sat." +
                                form.name('i', to_size) + "." + form.name('f', from_size);
    const std::string number_of =
        set("call " + t + " " + intrinsic(t, convert, f) + "(" + f + " " + value + ")");
    if (from.bits != 64 && to.bits != 64) return number_of;
    const std::string of_nan = form.literal(to_size, uint64_t{1} << (to.bits - 1));
    return set("select " + form.boolean() + " " + set("fcmp uno " + f + " " + value + ", " + value) + ", " +
               t + " " + of_nan + ", " + t + " " + number_of);
  }));
}

}  // namespace softgpu::jit
