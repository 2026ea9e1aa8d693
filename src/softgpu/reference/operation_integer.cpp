// Integer arithmetic: on 128-bit integers that cannot overflow, then cut to the type's width.
#include <algorithm>

#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

using Integer = __int128;
using Domain = NumberType::Domain;

bool is_integer(const std::optional<NumberType>& type) {
  return type && (type->domain == Domain::signed_integer || type->domain == Domain::unsigned_integer) &&
         type->register_bits() >= 16;
}

// A function of integers, applied to each part of packed operands; `store` makes bits of its result.
template <class F>
Operation integers(const NumberType& type, size_t sources, F function) {
  Operation made;
  made.results = {type.register_bits()};
  made.sources.assign(sources, type.register_bits());
  made.evaluate = [=](const Bits* s, Bits* d) {
    Bits result = 0;
    for (int part = 0; part < type.parts; ++part) {
      Integer value[3] = {};
      for (size_t i = 0; i < sources; ++i) value[i] = integer_value(s[i] >> (part * type.bits), type);
      result |= low_bits(static_cast<Bits>(function(value)), type.bits) << (part * type.bits);
    }
    d[0] = result;
  };
  return made;
}

// The exact product's bits: 64-bit unsigned products do not fit a signed 128-bit integer.
Bits product(Integer a, Integer b) {
  return static_cast<Bits>(a) * static_cast<Bits>(b);
}
Bits upper_half(Integer a, Integer b, const NumberType& type) {
  const Bits whole = product(a, b);
  return low_bits(
      type.is_signed() ? static_cast<Bits>(static_cast<Integer>(whole) >> type.bits) : whole >> type.bits,
      type.bits);
}

std::optional<Operation> sum(Words& words) {
  const bool subtracts = words.base() == "sub";
  const bool saturates = words.take("sat");
  const auto type = words.take_type();
  if (!is_integer(type) || !words.empty()) return std::nullopt;
  return integers(*type, 2, [=](const Integer* v) {
    const Integer exact = subtracts ? v[0] - v[1] : v[0] + v[1];
    return saturates ? clamp_to(exact, *type) : exact;
  });
}

std::optional<Operation> multiplication(Words& words) {
  const bool adds = words.base() == "mad";
  const std::string_view part = words.take_one_of({"lo", "hi", "wide"});
  if (part.empty()) return std::nullopt;
  const bool carries_out = adds && part != "wide" && words.take("cc");
  const bool saturates = adds && part == "hi" && !carries_out && words.take("sat");
  const auto type = words.take_type();
  if (!is_integer(type) || type->parts != 1 || !words.empty()) return std::nullopt;
  if (carries_out) return std::nullopt;  // carry()
  if (part == "wide") {
    if (type->bits > 32) return std::nullopt;
    Operation made;
    made.results = {2 * type->bits};
    made.sources = {type->bits, type->bits};
    if (adds) made.sources.push_back(2 * type->bits);
    made.evaluate = [=](const Bits* s, Bits* d) {
      const Bits exact = product(integer_value(s[0], *type), integer_value(s[1], *type));
      d[0] = low_bits(exact + (adds ? s[2] : 0), 2 * type->bits);
    };
    return made;
  }
  return integers(*type, adds ? 3 : 2, [=](const Integer* v) {
    const Bits half = part == "hi" ? upper_half(v[0], v[1], *type) : product(v[0], v[1]);
    if (saturates) return clamp_to(integer_value(half, *type) + v[2], *type);
    return static_cast<Integer>(half + static_cast<Bits>(v[2]));
  });
}

// add.cc addc sub.cc subc mad.cc madc: sums one bit wider than the type, whose top bit is the carry.
std::optional<Operation> carry(Words& words) {
  const std::string_view base = words.base();
  const bool multiplies = base.starts_with("mad"), subtracts = base.starts_with("sub");
  const bool reads = base.ends_with("c");
  const std::string_view part = multiplies ? words.take_one_of({"lo", "hi"}) : std::string_view("lo");
  const bool writes = words.take("cc");
  const auto type = words.take_type();
  if (part.empty() || (!reads && !writes) || !type || type->parts != 1 || type->is_float() ||
      type->bits < 32 || !words.empty()) {
    return std::nullopt;
  }
  Operation made;
  made.results = {type->bits};
  made.sources.assign(multiplies ? 3 : 2, type->bits);
  made.reads_carry = reads;
  made.writes_carry = writes;
  const size_t last = made.sources.size();
  made.evaluate = [=](const Bits* s, Bits* d) {
    const Bits in = reads ? s[last] : 0;
    Bits wide;
    if (multiplies) {
      const Integer a = integer_value(s[0], *type), b = integer_value(s[1], *type);
      wide = (part == "hi" ? upper_half(a, b, *type) : low_bits(product(a, b), type->bits)) + s[2] + in;
    } else {
      wide = subtracts ? s[0] - s[1] - in : s[0] + s[1] + in;  // a borrow shows above as ones
    }
    d[0] = low_bits(wide, type->bits);
    if (writes) d[1] = wide >> type->bits & 1;
  };
  return made;
}

std::optional<Operation> quotient(Words& words) {
  const bool remainder = words.base() == "rem";
  const auto type = words.take_type();
  if (!is_integer(type) || type->parts != 1 || !words.empty()) return std::nullopt;
  Operation made =
      integers(*type, 2, [=](const Integer* v) { return remainder ? v[0] % v[1] : v[0] / v[1]; });
  made.nonzero = {false, true};  // "an unspecified, machine-specific value"
  return made;
}

std::optional<Operation> extremum(Words& words) {
  const bool maximum = words.base() == "max";
  const bool relu = words.take("relu");
  const auto type = words.take_type();
  if (!is_integer(type) || !words.empty()) return std::nullopt;
  return integers(*type, 2, [=](const Integer* v) {
    const Integer chosen = maximum ? std::max(v[0], v[1]) : std::min(v[0], v[1]);
    return relu ? std::max<Integer>(chosen, 0) : chosen;
  });
}

std::optional<Operation> one_operand(Words& words) {
  const bool absolute = words.base() == "abs";
  const auto type = words.take_type();
  if (!is_integer(type) || !type->is_signed() || !words.empty()) return std::nullopt;
  return integers(*type, 1, [=](const Integer* v) { return absolute && v[0] >= 0 ? v[0] : -v[0]; });
}

std::optional<Operation> absolute_difference(Words& words) {
  const auto type = words.take_type();
  if (!is_integer(type) || type->parts != 1 || !words.empty()) return std::nullopt;
  return integers(*type, 3,
                  [](const Integer* v) { return v[2] + (v[0] < v[1] ? v[1] - v[0] : v[0] - v[1]); });
}

std::optional<Operation> multiplication_24(Words& words) {
  const bool adds = words.base() == "mad24";
  const std::string_view part = words.take_one_of({"lo", "hi"});
  const bool saturates = adds && part == "hi" && words.take("sat");
  const auto type = words.take_type();
  if (part.empty() || !is_integer(type) || type->bits != 32 || type->parts != 1 || !words.empty()) {
    return std::nullopt;
  }
  NumberType narrow = *type;
  narrow.bits = 24;
  return integers(*type, adds ? 3 : 2, [=](const Integer* v) {
    const Integer exact =
        integer_value(static_cast<Bits>(v[0]), narrow) * integer_value(static_cast<Bits>(v[1]), narrow);
    const Integer chosen = integer_value(static_cast<Bits>(part == "hi" ? exact >> 16 : exact), *type);
    const Integer total = adds ? chosen + v[2] : chosen;
    return saturates ? clamp_to(total, *type) : total;
  });
}

// dp4a: four products of bytes. dp2a: two of a half and a byte of the lower or upper half of b.
std::optional<Operation> dot_product(Words& words) {
  const bool four = words.base() == "dp4a";
  const std::string_view half = four ? "lo" : words.take_one_of({"lo", "hi"});
  const auto a = words.take_type(), b = words.take_type();
  if (half.empty() || !is_integer(a) || !is_integer(b) || a->bits != 32 || b->bits != 32 || !words.empty()) {
    return std::nullopt;
  }
  NumberType element_a = *a, element_b = *b;
  element_a.bits = four ? 8 : 16;
  element_b.bits = 8;
  Operation made;
  made.results = {32};
  made.sources = {32, 32, 32};
  made.evaluate = [=](const Bits* s, Bits* d) {
    Integer total = static_cast<Integer>(s[2]);
    for (int i = 0; i < (four ? 4 : 2); ++i) {
      const int byte = half == "hi" ? i + 2 : i;
      total += integer_value(s[0] >> (i * element_a.bits), element_a) *
               integer_value(s[1] >> (byte * 8), element_b);
    }
    d[0] = low_bits(static_cast<Bits>(total), 32);
  };
  return made;
}

}  // namespace

std::optional<Operation> integer_operation(Words words) {
  const std::string_view base = words.base();
  const auto attempt = [&](auto family) {
    Words copy = words;
    return family(copy);
  };
  if (base == "add" || base == "sub") {
    auto made = attempt(sum);
    return made ? made : attempt(carry);
  }
  if (base == "mul" || base == "mad") {
    auto made = attempt(multiplication);
    return made ? made : attempt(carry);
  }
  if (base == "addc" || base == "subc" || base == "madc") return attempt(carry);
  if (base == "div" || base == "rem") return attempt(quotient);
  if (base == "min" || base == "max") return attempt(extremum);
  if (base == "abs" || base == "neg") return attempt(one_operand);
  if (base == "sad") return attempt(absolute_difference);
  if (base == "mul24" || base == "mad24") return attempt(multiplication_24);
  if (base == "dp4a" || base == "dp2a") return attempt(dot_product);
  return std::nullopt;
}

}  // namespace softgpu::reference
