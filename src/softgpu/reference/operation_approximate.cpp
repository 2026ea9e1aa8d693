// What PTX defines by an error bound: the value is computed to 64 bits and a result is compared by the bound.
#include <cmath>
#include <numbers>

#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

using Real = long double;

struct Approximation {
  size_t sources = 1;
  std::function<Real(const Real*)> function;
  // Is the distance allowed? Called for finite exact values only.
  std::function<bool(const Real* sources, Real exact, Real got)> within;
};

bool relative(Real exact, Real got, Real bound) {
  return std::fabs(got - exact) <= bound * std::fabs(exact);
}
std::function<bool(const Real*, Real, Real)> relative_bound(int exponent_of_two, Real factor = 1) {
  const Real bound = std::ldexp(factor, exponent_of_two);
  return [bound](const Real*, Real exact, Real got) { return relative(exact, got, bound); };
}

// By the PTX manual; in its words "ulp" and "relative" are of the exact result.
std::optional<Approximation> approximation(std::string_view base, std::string_view how,
                                           const NumberType& type, bool flushes) {
  const bool half = type.bits == 16, single = type.bits == 32, is_double = type.bits == 64;
  const int ulp = single ? -23 : -52;
  if (base == "div" && single) {
    const bool narrow = how == "approx";
    return Approximation{2, [](const Real* s) { return s[0] / s[1]; },
                         [=](const Real* s, Real exact, Real got) {
                           // Beyond 2^126 .approx may give 0.
                           if (narrow && std::fabs(s[1]) > 0x1p126L) return true;
                           return relative(exact, got, std::ldexp(Real{2}, ulp));
                         }};
  }
  if (how != "approx") return std::nullopt;
  if (base == "rcp" && single)
    return Approximation{1, [](const Real* s) { return 1 / s[0]; }, relative_bound(-23)};
  if (base == "sqrt" && single) {
    return Approximation{1, [](const Real* s) { return std::sqrt(s[0]); }, relative_bound(-23)};
  }
  if (base == "rsqrt" && single) {
    return Approximation{1, [](const Real* s) { return 1 / std::sqrt(s[0]); }, relative_bound(-22, 0.54L)};
  }
  if (base == "rsqrt" && is_double) {
    return Approximation{1, [](const Real* s) { return 1 / std::sqrt(s[0]); },
                         flushes ? relative_bound(-19) : relative_bound(-51)};
  }
  if (base == "rcp" && is_double && flushes) {
    return Approximation{1, [](const Real* s) { return 1 / s[0]; }, relative_bound(-19)};
  }
  if ((base == "sin" || base == "cos") && single) {
    const bool sine = base == "sin";
    return Approximation{1, [=](const Real* s) { return sine ? std::sin(s[0]) : std::cos(s[0]); },
                         [](const Real* s, Real exact, Real got) {
                           const Real range = std::fabs(s[0]);
                           if (range > 100 * std::numbers::pi_v<Real>) return true;
                           const Real bound = range <= 2 * std::numbers::pi_v<Real> ? 0x1p-20L : 0x1p-14L;
                           return std::fabs(got - exact) <= bound;
                         }};
  }
  if (base == "ex2") {
    const auto bound = half ? (type.format == &f16_format ? relative_bound(-10, 1.08L) : relative_bound(-7))
                            : relative_bound(-22);
    return Approximation{1, [](const Real* s) { return std::exp2(s[0]); }, bound};
  }
  if (base == "lg2" && single) {
    return Approximation{1, [](const Real* s) { return std::log2(s[0]); },
                         [](const Real* s, Real exact, Real got) {
                           if (s[0] > 0.5L && s[0] < 2) return std::fabs(got - exact) <= 0x1p-22L;
                           return relative(exact, got, 0x1p-22L);
                         }};
  }
  if (base == "tanh") {
    const auto absolute = [](Real bound) {
      return [bound](const Real*, Real exact, Real got) { return std::fabs(got - exact) <= bound; };
    };
    return Approximation{1, [](const Real* s) { return std::tanh(s[0]); },
                         single ? relative_bound(-11)
                         : type.format == &f16_format
                             ? std::function<bool(const Real*, Real, Real)>(absolute(0x1p-10L))
                             : absolute(0x1p-8L)};
  }
  return std::nullopt;
}

// What the result's format makes of a value, and what a flushed subnormal may become, is allowed too.
bool allowed_part(const Approximation& function, const Real* s, uint64_t got_bits, const FloatFormat& format,
                  bool flushes) {
  const Real exact = function.function(s);
  const Number got_number = unpack(got_bits, format);
  if (std::isnan(exact)) return got_number.is_nan();
  if (got_number.is_nan()) return false;
  const Real got = to_long_double(got_number);
  const uint64_t nearest = pack(from_long_double(exact), format, Rounding::nearest_even);
  const Number rounded = unpack(nearest, format);
  if (got_bits == nearest) return true;
  const Real smallest_normal = std::ldexp(Real{1}, 2 - (1 << (format.exponent_bits - 1)));
  const Real unit = std::ldexp(smallest_normal, -format.fraction_bits);
  if (std::fabs(exact) < 1.01L * smallest_normal) {
    // Near zero a unit counts, and with .ftz (or where the hardware has no subnormal results) also zero.
    if (flushes && std::fabs(got) <= 1.01L * smallest_normal) return true;
    if (std::fabs(got - exact) <= 2 * unit) return true;
  }
  if (rounded.kind == Number::Kind::infinite || got_number.kind == Number::Kind::infinite) {
    // One beside the largest number, or both infinite.
    return rounded.kind == got_number.kind && rounded.negative == got_number.negative;
  }
  return function.within(s, exact, got);
}

}  // namespace

std::optional<Operation> approximate_operation(Words words) {
  const std::string_view how = words.take_one_of({"approx", "full"});
  if (how.empty()) return std::nullopt;
  const bool flushes = words.take("ftz");
  const auto type = words.take_type();
  if (!type || !type->is_float() || !words.empty()) return std::nullopt;
  const auto function = approximation(words.base(), how, *type, flushes);
  if (!function) return std::nullopt;
  Operation made;
  made.results = {type->register_bits()};
  made.sources.assign(function->sources, type->register_bits());
  made.exactness = Exactness::bounded;
  made.format = made.source_format = type->format;
  made.parts = type->parts;
  const auto part_values = [type = *type, flushes](const Bits* s, size_t sources, int part, Real* values) {
    for (size_t i = 0; i < sources; ++i) {
      const auto bits = static_cast<uint64_t>(low_bits(s[i] >> (part * type.bits), type.bits));
      Number value = unpack(bits, *type.format);
      if (flushes && is_subnormal(bits, *type.format)) {
        value = Number{};
        value.negative = (bits >> (type.bits - 1)) != 0;
      }
      values[i] = to_long_double(value);
    }
  };
  made.evaluate = [=, type = *type, function = *function](const Bits* s, Bits* d) {
    d[0] = 0;
    for (int part = 0; part < type.parts; ++part) {
      Real values[2];
      part_values(s, function.sources, part, values);
      const Number result = from_long_double(function.function(values));
      d[0] |= Bits{pack(result, *type.format, Rounding::nearest_even)} << (part * type.bits);
    }
  };
  made.allows = [=, type = *type, function = *function](const Bits* s, Bits got) {
    for (int part = 0; part < type.parts; ++part) {
      Real values[2];
      part_values(s, function.sources, part, values);
      const auto bits = static_cast<uint64_t>(low_bits(got >> (part * type.bits), type.bits));
      if (!allowed_part(function, values, bits, *type.format, flushes)) return false;
    }
    return true;
  };
  return made;
}

}  // namespace softgpu::reference
