// setp and selp.
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {
namespace {

std::string integer_condition(std::string_view op, bool is_signed) {
  if (op == "eq" || op == "ne") return std::string(op);
  const std::string prefix = is_signed ? "s" : "u";
  if (op == "lt" || op == "lo") return prefix + "lt";
  if (op == "le" || op == "ls") return prefix + "le";
  if (op == "gt" || op == "hi") return prefix + "gt";
  if (op == "ge" || op == "hs") return prefix + "ge";
  return "";
}
std::string float_condition(std::string_view op) {
  if (op == "eq" || op == "ne" || op == "lt" || op == "le" || op == "gt" || op == "ge")
    return "o" + (op == "ne" ? std::string("ne") : std::string(op));
  if (op == "equ" || op == "neu" || op == "ltu" || op == "leu" || op == "gtu" || op == "geu")
    return "u" + std::string(op.substr(0, 2));
  if (op == "num") return "ord";
  if (op == "nan") return "uno";
  return "";
}

}  // namespace

bool Emitter::emit_compare(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  if (name.part(0) == "selp") {
    if (name.last() == "pred") return false;
    const Value p = use(in.in.op[3]), a = use(in.in.op[1]), b = use(in.in.op[2]);
    const char size = a.size;
    Value result;
    if (p.scalar && a.scalar && b.scalar && same_offsets(a.offsets, b.offsets)) {
      const std::string t = Form{true}.integer(size);
      result =
          scalar_value(size, set("select i1 " + p.text + ", " + t + " " + a.text + ", " + t + " " + b.text));
      result.offsets = a.offsets;
    } else {
      const std::string t = Form{false}.integer(size), x = vector(a), y = vector(b);
      const std::string choice = p.scalar ? "i1 " + p.text : "<32 x i1> " + lanes_of_mask(p.text);
      result = vector_value(size, set("select " + choice + ", " + t + " " + x + ", " + t + " " + y));
    }
    define(in.in.op[0], result);
    return true;
  }
  if (name.part(0) != "setp") return false;
  const std::string_view type = name.last();
  const bool floats = type == "f32" || type == "f64";
  const IntegerType integers = integer_type(type);
  const char size = type == "f32" ? 'w' : type == "f64" ? 'x' : integers.size;
  if (size == 0) return false;
  std::string combine;
  bool ftz = false;
  for (size_t k = 2; k + 1 < name.size(); ++k) {
    const std::string_view part = name.part(k);
    if (part == "ftz")
      ftz = true;
    else if (part == "and" || part == "or" || part == "xor")
      combine = part;
    else
      return false;
  }
  const std::string condition =
      floats ? float_condition(name.part(1)) : integer_condition(name.part(1), integers.is_signed);
  if (condition.empty()) return false;
  Value result = compare_lanes(
      {use(in.in.op[2]), use(in.in.op[3])}, [&](const Form& form, const std::vector<std::string>& s) {
        const std::string t = form.integer(size);
        if (!floats) return set("icmp " + condition + " " + t + " " + s[0] + ", " + s[1]);
        const std::string f = form.floating(size);
        const std::string a = set("bitcast " + t + " " + (ftz ? flushed(form, s[0]) : s[0]) + " to " + f);
        const std::string b = set("bitcast " + t + " " + (ftz ? flushed(form, s[1]) : s[1]) + " to " + f);
        return set("fcmp " + condition + " " + f + " " + a + ", " + b);
      });
  auto opposite = [&](const Value& value) {
    return value.scalar ? scalar_value('p', set("xor i1 " + value.text + ", true"))
                        : vector_value('p', set("xor i32 " + value.text + ", -1"));
  };
  Value other = opposite(result);
  if (!combine.empty()) {
    const Value c = use(in.in.op[4]);
    auto combined = [&](const Value& value) {
      if (value.scalar && c.scalar)
        return scalar_value('p', set(combine + " i1 " + value.text + ", " + c.text));
      return vector_value('p', set(combine + " i32 " + predicate_mask(value) + ", " + predicate_mask(c)));
    };
    result = combined(result);
    other = combined(other);
  }
  define(in.in.op[0], result);
  define(in.in.op[1], other);
  return true;
}

}  // namespace softgpu::jit
