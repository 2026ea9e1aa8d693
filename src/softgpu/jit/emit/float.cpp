// f32 and f64 where results round to nearest even. Never contracted, no fast-math flags: each operation is
// the interpreter's.
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {

// Subnormal -> zero of the same sign; on the bits of f32.
std::string Emitter::flushed(const Form& form, const std::string& text) {
  const std::string t = form.integer('w');
  const std::string magnitude = set("and " + t + " " + text + ", " + form.literal('w', 0x7fffffff));
  const std::string tiny = set("icmp ult " + t + " " + magnitude + ", " + form.literal('w', 0x00800000));
  const std::string sign = set("and " + t + " " + text + ", " + form.literal('w', 0x80000000));
  return set("select " + form.boolean() + " " + tiny + ", " + t + " " + sign + ", " + t + " " + text);
}

bool Emitter::emit_float(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const char size = name.last() == "f32" ? 'w' : name.last() == "f64" ? 'x' : char{0};
  if (size == 0 || !in.list.empty()) return false;
  const std::string_view base = name.part(0);
  // What stands between: only what is known here may.
  bool ftz = false, approximate = false, rounds = false;
  for (size_t k = 1; k + 1 < name.size(); ++k) {
    const std::string_view part = name.part(k);
    if (part == "ftz")
      ftz = true;
    else if (part == "rn")
      rounds = true;
    else if (part == "approx" || part == "full")
      approximate = true;
    else
      return false;
  }
  if (ftz && size == 'x') return false;
  (void)rounds;
  const uint32_t sources = in.uses;
  const bool binary = base == "add" || base == "sub" || base == "mul" || base == "div";
  const bool ternary = base == "fma" || base == "mad";
  const bool root = base == "sqrt", reciprocal = base == "rcp", inverse_root = base == "rsqrt";
  const bool sign_only = base == "neg" || base == "abs";
  const bool extremum = base == "min" || base == "max";
  if (!binary && !ternary && !root && !reciprocal && !inverse_root && !sign_only && !extremum) return false;
  if ((binary || extremum ? 2u : ternary ? 3u : 1u) != sources || in.defs != 1) return false;
  if (size == 'x' && approximate) return false;  // seeds for iterations, with a precision of their own
  auto build = [&](const Form& form, const std::vector<std::string>& given) {
    const std::string t = form.integer(size), f = form.floating(size);
    std::vector<std::string> s;
    for (const std::string& text : given) s.push_back(ftz ? flushed(form, text) : text);
    auto floating = [&](const std::string& bits) { return set("bitcast " + t + " " + bits + " to " + f); };
    auto bits = [&](const std::string& value) { return set("bitcast " + f + " " + value + " to " + t); };
    auto finish = [&](const std::string& value) {
      const std::string result = bits(value);
      return ftz ? flushed(form, result) : result;
    };
    const uint64_t sign = size == 'x' ? uint64_t{1} << 63 : uint64_t{1} << 31;
    const std::string one = form.scalar ? "1.0" : [&] {
      std::string all = "<";
      for (uint32_t l = 0; l < warp_lanes; ++l)
        all += std::string(l ? ", " : "") + (size == 'x' ? "double" : "float") + " 1.0";
      return all + ">";
    }();
    if (sign_only) {
      const std::string result = base == "neg"
                                     ? set("xor " + t + " " + s[0] + ", " + form.literal(size, sign))
                                     : set("and " + t + " " + s[0] + ", " + form.literal(size, sign - 1));
      return ftz ? flushed(form, result) : result;
    }
    if (extremum) {
      // A NaN loses against a number; -0 is less than +0.
      const bool most = base == "max";
      const std::string a = floating(s[0]), b = floating(s[1]), i1 = form.boolean();
      auto choose = [&](const std::string& condition, const std::string& x, const std::string& y) {
        return set("select " + i1 + " " + condition + ", " + t + " " + x + ", " + t + " " + y);
      };
      const std::string zeros = set((most ? "and " : "or ") + t + " " + s[0] + ", " + s[1]);
      const std::string first = set(std::string("fcmp ") + (most ? "ogt " : "olt ") + f + " " + a + ", " + b);
      const std::string equal = set("fcmp oeq " + f + " " + a + ", " + b);
      const std::string nan_a = set("fcmp uno " + f + " " + a + ", " + a);
      const std::string nan_b = set("fcmp uno " + f + " " + b + ", " + b);
      std::string result = choose(equal, zeros, choose(first, s[0], s[1]));
      result = choose(nan_a, s[1], choose(nan_b, s[0], result));
      result = choose(set("and " + i1 + " " + nan_a + ", " + nan_b), form.literal(size, sign - 1), result);
      return ftz ? flushed(form, result) : result;
    }
    const std::string a = floating(s[0]);
    auto square_root = [&] {
      return set("call " + f + " " + intrinsic(f, "sqrt." + form.name('f', size), f) + "(" + f + " " + a +
                 ")");
    };
    if (root) return finish(square_root());
    if (reciprocal) return finish(set("fdiv " + f + " " + one + ", " + a));
    if (inverse_root) return finish(set("fdiv " + f + " " + one + ", " + square_root()));
    const std::string b = floating(s[1]);
    if (ternary) {
      const std::string fma = intrinsic(f, "fma." + form.name('f', size), f + ", " + f + ", " + f);
      return finish(set("call " + f + " " + fma + "(" + f + " " + a + ", " + f + " " + b + ", " + f + " " +
                        floating(s[2]) + ")"));
    }
    const char* const word = base == "add"   ? "fadd "
                             : base == "sub" ? "fsub "
                             : base == "mul" ? "fmul "
                                             : "fdiv ";
    return finish(set(word + f + " " + a + ", " + b));
  };
  const Value a = use(in.in.op[1]);
  Value result;
  if (sources == 1) {
    result = lanewise(size, {a}, build);
  } else if (sources == 2) {
    result = lanewise(size, {a, use(in.in.op[2])}, build);
  } else {
    result = lanewise(size, {a, use(in.in.op[2]), use(in.in.op[3])}, build);
  }
  define(in.in.op[0], result);
  return true;
}

}  // namespace softgpu::jit
