// cvt: between integers, between floating-point formats, from one to the other, and into packed pairs.
#include <algorithm>

#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

struct Conversion {
  NumberType to, from;
  std::optional<Rounding> rounding, to_integral;
  bool flushes = false, saturates = false, relu = false, stay_finite = false;
};

// cvt.rni .rzi .rmi .rpi
std::optional<Rounding> take_integral_rounding(Words& words) {
  const std::string_view word = words.take_one_of({"rni", "rzi", "rmi", "rpi"});
  if (word == "rni") return Rounding::nearest_even;
  if (word == "rzi") return Rounding::zero;
  if (word == "rmi") return Rounding::down;
  if (word == "rpi") return Rounding::up;
  return std::nullopt;
}

// Single-precision subnormals only, as the manual says.
Number flushed(const Number& value, uint64_t bits, const FloatFormat& format) {
  if (&format != &f32_format || !is_subnormal(bits, format)) return value;
  Number zero;
  zero.negative = value.negative;
  return zero;
}

Number limited(const Number& value, const Conversion& how) {
  if (how.saturates) {
    if (value.is_nan() || value.negative || value.kind == Number::Kind::zero) return Number{};
    const Number one = from_integer(1);
    return compare(value, one) > 0 ? one : value;
  }
  return how.relu && !value.is_nan() && value.negative ? Number{} : value;
}

// Rounded, then limited.
uint64_t packed_limited(const Number& value, const Conversion& how) {
  const Rounding rounding = how.rounding.value_or(Rounding::nearest_even);
  const uint64_t rounded = pack(value, *how.to.format, rounding, how.stay_finite);
  return pack(limited(unpack(rounded, *how.to.format), how), *how.to.format, rounding);
}

Bits integer_to_integer(Bits source, const Conversion& how) {
  const __int128 value = integer_value(source, how.from);
  return low_bits(static_cast<Bits>(how.saturates ? clamp_to(value, how.to) : value), how.to.bits);
}

Bits integer_to_float(Bits source, const Conversion& how) {
  return packed_limited(from_integer(integer_value(source, how.from)), how);
}

// Out of range gives the nearest. NaN gives 0, but the highest bit where the source or the result has 64
// bits.
Bits float_to_integer(Bits source, const Conversion& how) {
  const auto bits = static_cast<uint64_t>(source);
  Number value = unpack(bits, *how.from.format);
  if (how.flushes) value = flushed(value, bits, *how.from.format);
  if (value.is_nan()) {
    return how.from.bits == 64 || how.to.bits == 64 ? Bits{1} << (how.to.bits - 1) : 0;
  }
  const bool huge = value.kind == Number::Kind::infinite || value.exponent > 64;
  const __int128 far = __int128{1} << 100;
  const __int128 rounded = huge ? (value.negative ? -far : far) : round_to_integer(value, *how.to_integral);
  return low_bits(static_cast<Bits>(clamp_to(rounded, how.to)), how.to.bits);
}

Bits float_to_float(Bits source, const Conversion& how) {
  const auto bits = static_cast<uint64_t>(source);
  Number value = unpack(bits, *how.from.format);
  if (how.flushes) value = flushed(value, bits, *how.from.format);
  if (how.to_integral && value.kind == Number::Kind::finite && value.exponent < 0) {
    const bool negative = value.negative;
    value = from_integer(round_to_integer(value, *how.to_integral));
    value.negative = negative;  // also a zero's
  }
  const uint64_t result = packed_limited(value, how);
  const bool flush_result = how.flushes && how.to.format == &f32_format && is_subnormal(result, f32_format);
  return flush_result ? result & (uint64_t{1} << 31) : result;
}

Bits convert(Bits source, const Conversion& how) {
  source = low_bits(source, how.from.bits);
  if (how.from.is_float())
    return how.to.is_float() ? float_to_float(source, how) : float_to_integer(source, how);
  return how.to.is_float() ? integer_to_float(source, how) : integer_to_integer(source, how);
}

// Integers in 8 bits lie in 16-bit registers, extended by their sign.
int register_width(const NumberType& type) {
  return std::max(type.register_bits(), 16);
}
Bits in_register(Bits value, const NumberType& type) {
  const bool extends = type.bits == 8 && !type.is_float() && type.is_signed();
  return extends ? low_bits(static_cast<Bits>(integer_value(value, type)), 16) : value;
}

std::optional<Operation> packed_integers(Words& words) {  // cvt.pack.sat.u8.s32.b32 d, a, b, c
  if (!words.take("sat")) return std::nullopt;
  const auto to = words.take_type(), from = words.take_type();
  const bool with_c = words.take("b32");
  if (!to || !from || to->is_float() || from->bits != 32 || to->bits > 16 || !words.empty())
    return std::nullopt;
  if (with_c != (to->bits < 16) || !from->is_signed()) return std::nullopt;
  Operation made;
  made.results = {32};
  made.sources = {32, 32};
  if (with_c) made.sources.push_back(32);
  made.evaluate = [=](const Bits* s, Bits* d) {
    const auto part = [&](Bits value) {
      return low_bits(static_cast<Bits>(clamp_to(integer_value(value, *from), *to)), to->bits);
    };
    d[0] = part(s[0]) << to->bits | part(s[1]);
    if (with_c) d[0] = low_bits(s[2] << (2 * to->bits) | d[0], 32);
  };
  return made;
}

// Without a rounding where one is needed, or with one where none may be, it is no opcode.
bool is_legal(const Conversion& how) {
  const bool from_float = how.from.is_float(), to_float = how.to.is_float();
  if (how.from.domain == NumberType::Domain::bits || how.to.domain == NumberType::Domain::bits) return false;
  if (how.from.domain == NumberType::Domain::predicate || how.to.domain == NumberType::Domain::predicate)
    return false;
  // .ftz is said of f32 only.
  if (how.flushes && how.from.format != &f32_format && how.to.format != &f32_format) return false;
  if (!from_float && !to_float) return !how.rounding && !how.to_integral;
  if (!from_float) return how.rounding.has_value();
  if (!to_float) return how.to_integral.has_value();
  return true;
}

}  // namespace

std::optional<Operation> conversion_operation(Words words) {
  if (words.base() != "cvt") return std::nullopt;
  if (words.take("pack")) return packed_integers(words);
  Conversion how;
  how.rounding = words.take_rounding();
  how.to_integral = take_integral_rounding(words);
  for (bool more = true; more;) {
    more = false;
    for (const auto& [word, flag] :
         {std::pair{"ftz", &how.flushes}, std::pair{"sat", &how.saturates}, std::pair{"relu", &how.relu},
          std::pair{"satfinite", &how.stay_finite}}) {
      if (words.take(word)) *flag = more = true;
    }
  }
  const auto to = words.take_type(), from = words.take_type();
  if (!to || !from || !words.empty()) return std::nullopt;
  const bool whole_numbers = !to->is_float() || !from->is_float();
  if (whole_numbers && (to->parts > 1 || from->parts > 1 || to->bits < 8 || from->bits < 8))
    return std::nullopt;
  how.to = *to;
  how.from = *from;
  if (!is_legal(how)) return std::nullopt;
  Operation made;
  made.results = {register_width(*to)};
  made.source_format = from->format;
  // A NaN's bits are said of the small formats only, or where a modifier makes it canonical.
  if (to->is_float() && !how.saturates && to->bits > 8) made.exactness = Exactness::any_nan;
  made.format = to->format;
  made.parts = to->parts;
  if (to->parts == 1 && from->parts == 1) {
    made.sources = {register_width(*from)};
    made.evaluate = [=](const Bits* s, Bits* d) { d[0] = in_register(convert(s[0], how), how.to); };
    return made;
  }
  if (to->parts != 2) return std::nullopt;
  // Two single sources, the first of which goes to the upper part; or one packed source.
  Conversion each = how;
  each.to.parts = each.from.parts = 1;
  const bool packed = from->parts == 2;
  made.sources = packed ? std::vector<int>{register_width(*from)} : std::vector<int>{from->bits, from->bits};
  made.evaluate = [=](const Bits* s, Bits* d) {
    const Bits upper = packed ? s[0] >> each.from.bits : s[0], lower = packed ? s[0] : s[1];
    d[0] = convert(upper, each) << each.to.bits | convert(lower, each);
  };
  return made;
}

}  // namespace softgpu::reference
