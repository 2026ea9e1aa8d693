// Floating-point arithmetic that PTX defines exactly: every result is rounded once.
#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

struct Modifiers {
  Rounding rounding = Rounding::nearest_even;
  bool flushes = false, saturates = false, relu = false;
};

uint64_t flushed(uint64_t bits, const FloatFormat& format) {
  const uint64_t sign = uint64_t{1} << (format.total_bits() - 1);
  return is_subnormal(bits, format) ? bits & sign : bits;
}

// [0, 1], where NaN becomes +0; or nothing below 0, where NaN stays one.
Number limited(const Number& value, const Modifiers& how) {
  Number zero, one = from_integer(1);
  if (how.saturates) {
    if (value.is_nan() || value.negative || value.kind == Number::Kind::zero) return zero;
    return compare(value, one) > 0 ? one : value;
  }
  if (how.relu && !value.is_nan() && value.negative) return zero;
  return value;
}

uint64_t finished(const Number& value, const FloatFormat& format, const Modifiers& how) {
  const uint64_t rounded = pack(value, format, how.rounding);
  const uint64_t bits = pack(limited(unpack(rounded, format), how), format, how.rounding);
  return how.flushes ? flushed(bits, format) : bits;
}

template <class F>  // Number of (const Number*)
Operation floats(const NumberType& type, size_t sources, const Modifiers& how, F function) {
  Operation made;
  made.results = {type.register_bits()};
  made.sources.assign(sources, type.register_bits());
  made.exactness = how.saturates ? Exactness::bits : Exactness::any_nan;
  made.format = made.source_format = type.format;
  made.parts = type.parts;
  made.evaluate = [=](const Bits* s, Bits* d) {
    d[0] = 0;
    for (int part = 0; part < type.parts; ++part) {
      Number value[3];
      for (size_t i = 0; i < sources; ++i) {
        const auto bits = static_cast<uint64_t>(low_bits(s[i] >> (part * type.bits), type.bits));
        value[i] = unpack(how.flushes ? flushed(bits, *type.format) : bits, *type.format);
      }
      d[0] |= Bits{finished(function(value), *type.format, how)} << (part * type.bits);
    }
  };
  return made;
}

std::optional<Operation> arithmetic(Words& words) {
  const std::string_view base = words.base();
  const auto rounding = words.take_rounding();
  Modifiers how;
  how.rounding = rounding.value_or(Rounding::nearest_even);
  how.flushes = words.take("ftz");
  how.saturates = words.take("sat");
  how.relu = words.take("relu");
  const auto type = words.take_type();
  if (!type || !type->is_float() || type->bits < 16) return std::nullopt;
  if (auto operand = words.take_type()) {
    // add.f32.f16 d, a, c: the operands but the last are of the narrow type
    if (!operand->is_float() || operand->parts != 1 || type->parts != 1 || !words.empty())
      return std::nullopt;
    const bool fused = base == "fma";
    if (!fused && base != "add" && base != "sub") return std::nullopt;
    Operation made = floats(*type, 2, how, [](const Number*) { return Number{}; });
    made.sources = {operand->bits, type->bits};
    if (fused) made.sources.insert(made.sources.begin(), operand->bits);
    made.source_format = operand->format;
    made.evaluate = [=](const Bits* s, Bits* d) {
      const Number a = unpack(static_cast<uint64_t>(s[0]), *operand->format);
      const Number b = fused ? unpack(static_cast<uint64_t>(s[1]), *operand->format) : from_integer(1);
      const Number c = unpack(static_cast<uint64_t>(s[fused ? 2 : 1]), *type->format);
      const Number scaled = fused ? multiply(a, b) : a;
      d[0] = finished(add(scaled, base == "sub" ? negate(c) : c, how.rounding), *type->format, how);
    };
    return made;
  }
  if (!words.empty()) return std::nullopt;
  const Rounding mode = how.rounding;
  if (base == "add") {
    return floats(*type, 2, how, [=](const Number* v) { return add(v[0], v[1], mode); });
  }
  if (base == "sub") {
    return floats(*type, 2, how, [=](const Number* v) { return add(v[0], negate(v[1]), mode); });
  }
  if (base == "mul") return floats(*type, 2, how, [](const Number* v) { return multiply(v[0], v[1]); });
  if (base == "fma" || base == "mad") {
    return floats(*type, 3, how, [=](const Number* v) { return add(multiply(v[0], v[1]), v[2], mode); });
  }
  if (!rounding) return std::nullopt;  // the approximations
  if (base == "div") return floats(*type, 2, how, [](const Number* v) { return divide(v[0], v[1]); });
  if (base == "rcp") {
    return floats(*type, 1, how, [](const Number* v) { return divide(from_integer(1), v[0]); });
  }
  if (base == "sqrt") return floats(*type, 1, how, [](const Number* v) { return square_root(v[0]); });
  return std::nullopt;
}

std::optional<Operation> sign_change(Words& words) {
  const bool absolute = words.base() == "abs";
  Modifiers how;
  how.flushes = words.take("ftz");
  const auto type = words.take_type();
  if (!type || !type->is_float() || type->bits < 16 || !words.empty()) return std::nullopt;
  return floats(*type, 1, how,
                [=](const Number* v) { return absolute && !v[0].negative ? v[0] : negate(v[0]); });
}

std::optional<Operation> extremum(Words& words) {
  const bool maximum = words.base() == "max";
  Modifiers how;
  how.flushes = words.take("ftz");
  const bool nan_wins = words.take("NaN");
  const bool xor_sign = words.take("xorsign");
  const bool absolute = words.take("abs");
  if (xor_sign && !absolute) return std::nullopt;
  const auto type = words.take_type();
  if (!type || !type->is_float() || type->bits < 16 || !words.empty()) return std::nullopt;
  Operation made = floats(*type, 2, how, [=](const Number* v) {
    Number a = v[0], b = v[1];
    const bool sign = a.negative != b.negative;
    if (absolute) a.negative = b.negative = false;
    Number chosen;
    if (a.is_nan() || b.is_nan()) {
      chosen = nan_wins || (a.is_nan() && b.is_nan()) ? (a.is_nan() ? a : b) : a.is_nan() ? b : a;
    } else {
      const int order = compare(a, b);
      const bool a_is_less = order < 0 || (order == 0 && a.negative && !b.negative);  // -0 is less than +0
      chosen = a_is_less == maximum ? b : a;
    }
    if (xor_sign) chosen.negative = sign;
    return chosen;
  });
  // "the result is canonical NaN" is said of it; what .xorsign does to a NaN's sign is not.
  made.exactness = xor_sign || type->bits == 64 ? Exactness::any_nan : Exactness::bits;
  return made;
}

std::optional<Operation> copy_sign(Words& words) {
  const auto type = words.take_type();
  if (!type || !type->is_float() || type->parts != 1 || type->bits < 32 || !words.empty())
    return std::nullopt;
  Operation made;
  made.results = {type->bits};
  made.sources = {type->bits, type->bits};
  made.source_format = type->format;
  made.evaluate = [sign = Bits{1} << (type->bits - 1)](const Bits* s, Bits* d) {
    d[0] = (s[1] & ~sign) | (s[0] & sign);  // copysign d, a, b: the sign of a on b
  };
  return made;
}

std::optional<Operation> property(Words& words) {
  const std::string_view which =
      words.take_one_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const auto type = words.take_type();
  if (which.empty() || !type || !type->is_float() || type->parts != 1 || !words.empty()) return std::nullopt;
  Operation made;
  made.results = {1};
  made.sources = {type->bits};
  made.source_format = type->format;
  made.evaluate = [=](const Bits* s, Bits* d) {
    using Kind = Number::Kind;
    const auto bits = static_cast<uint64_t>(s[0]);
    const Kind kind = unpack(bits, *type->format).kind;
    const bool subnormal = is_subnormal(bits, *type->format);
    d[0] = which == "finite"       ? kind == Kind::finite || kind == Kind::zero
           : which == "infinite"   ? kind == Kind::infinite
           : which == "number"     ? kind != Kind::nan
           : which == "notanumber" ? kind == Kind::nan
           : which == "normal"     ? kind == Kind::zero || (kind == Kind::finite && !subnormal)
                                   : subnormal;
  };
  return made;
}

}  // namespace

std::optional<Operation> float_operation(Words words) {
  const std::string_view base = words.base();
  if (base == "neg" || base == "abs") return sign_change(words);
  if (base == "min" || base == "max") return extremum(words);
  if (base == "copysign") return copy_sign(words);
  if (base == "testp") return property(words);
  if (base == "add" || base == "sub" || base == "mul" || base == "fma" || base == "mad" || base == "div" ||
      base == "rcp" || base == "sqrt") {
    return arithmetic(words);
  }
  return std::nullopt;
}

}  // namespace softgpu::reference
