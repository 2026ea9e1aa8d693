// setp set selp slct.
#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

using Domain = NumberType::Domain;

enum class Order : uint8_t { less, equal, greater, unordered };

Order order_of(Bits a, Bits b, const NumberType& type, bool flushes) {
  if (!type.is_float()) {
    const __int128 x = integer_value(a, type), y = integer_value(b, type);
    return x < y ? Order::less : x > y ? Order::greater : Order::equal;
  }
  const auto value = [&](Bits operand) {
    const auto bits = static_cast<uint64_t>(low_bits(operand, type.bits));
    return flushes && is_subnormal(bits, *type.format) ? Number{} : unpack(bits, *type.format);
  };
  const Number x = value(a), y = value(b);
  if (x.is_nan() || y.is_nan()) return Order::unordered;
  const int order = compare(x, y);
  return order < 0 ? Order::less : order > 0 ? Order::greater : Order::equal;
}

bool holds(std::string_view comparison, Order order) {
  if (comparison == "num") return order != Order::unordered;
  if (comparison == "nan") return order == Order::unordered;
  const bool or_unordered = comparison.size() == 3;
  if (order == Order::unordered) return or_unordered;
  comparison = comparison.substr(0, 2);
  if (comparison == "eq") return order == Order::equal;
  if (comparison == "ne") return order != Order::equal;
  if (comparison == "lt" || comparison == "lo") return order == Order::less;
  if (comparison == "le" || comparison == "ls") return order != Order::greater;
  if (comparison == "gt" || comparison == "hi") return order == Order::greater;
  return order != Order::less;  // ge, hs
}

struct Comparison {
  std::string_view which, combine;
  bool flushes = false;
  [[nodiscard]] size_t sources() const { return combine.empty() ? 2 : 3; }
  [[nodiscard]] bool combined(bool value, const Bits* s) const {
    const bool c = !combine.empty() && s[2] != 0;
    return combine == "and"   ? value && c
           : combine == "or"  ? value || c
           : combine == "xor" ? value != c
                              : value;
  }
};

std::optional<Comparison> take_comparison(Words& words) {
  Comparison made;
  made.which = words.take_one_of({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu",
                                  "ltu", "leu", "gtu", "geu", "num", "nan"});
  made.combine = words.take_one_of({"and", "or", "xor"});
  made.flushes = words.take("ftz");
  return made.which.empty() ? std::nullopt : std::optional(made);
}

void set_sources(Operation& made, const NumberType& type, const Comparison& comparison) {
  made.sources = {type.register_bits(), type.register_bits()};
  if (comparison.sources() == 3) made.sources.push_back(1);
  made.source_format = type.format;
}

// Packed operands: p is of the lower part, q of the upper; else q is the negated comparison.
std::optional<Operation> set_predicates(Words& words) {
  const auto comparison = take_comparison(words);
  const auto type = words.take_type();
  if (!comparison || !type || type->bits < 16 || !words.empty()) return std::nullopt;
  Operation made;
  made.results = {1, 1};
  set_sources(made, *type, *comparison);
  made.evaluate = [=](const Bits* s, Bits* d) {
    const bool low = holds(comparison->which, order_of(s[0], s[1], *type, comparison->flushes));
    const bool high = type->parts == 2 &&
                      holds(comparison->which,
                            order_of(s[0] >> type->bits, s[1] >> type->bits, *type, comparison->flushes));
    d[0] = comparison->combined(low, s);
    d[1] = comparison->combined(type->parts == 2 ? high : !low, s);
  };
  return made;
}

std::optional<Operation> set_value(Words& words) {
  const auto comparison = take_comparison(words);
  const auto to = words.take_type(), type = words.take_type();
  if (!comparison || !to || !type || type->bits < 16 || !words.empty()) return std::nullopt;
  if (to->is_float() && to->parts != type->parts) return std::nullopt;
  Operation made;
  made.results = {to->register_bits()};
  set_sources(made, *type, *comparison);
  // Packed operands give packed results, also where the type says 32 bits.
  const int parts = type->parts, width = to->register_bits() / parts;
  const Bits yes = to->is_float() ? Bits{pack(from_integer(1), *to->format, Rounding::nearest_even)}
                                  : low_bits(~Bits{0}, width);
  made.evaluate = [=](const Bits* s, Bits* d) {
    d[0] = 0;
    for (int part = 0; part < parts; ++part) {
      const Order order =
          order_of(s[0] >> (part * type->bits), s[1] >> (part * type->bits), *type, comparison->flushes);
      if (comparison->combined(holds(comparison->which, order), s)) d[0] |= yes << (part * width);
    }
  };
  return made;
}

std::optional<Operation> select(Words& words) {
  const auto type = words.take_type();
  if (!type || type->parts != 1 || !words.empty()) return std::nullopt;
  Operation made;
  made.results = {type->bits};
  made.sources = {type->bits, type->bits, 1};
  made.evaluate = [](const Bits* s, Bits* d) { d[0] = s[2] != 0 ? s[0] : s[1]; };
  return made;
}

std::optional<Operation> select_by_sign(Words& words) {
  const bool flushes = words.take("ftz");
  const auto type = words.take_type(), sign = words.take_type();
  if (!type || !sign || type->parts != 1 || sign->bits != 32 || !words.empty()) return std::nullopt;
  if (!sign->is_float() && !sign->is_signed()) return std::nullopt;
  Operation made;
  made.results = {type->bits};
  made.sources = {type->bits, type->bits, 32};
  made.source_format = sign->format;
  made.evaluate = [=](const Bits* s, Bits* d) {
    const Order order = order_of(s[2], 0, *sign, flushes);
    d[0] = order == Order::greater || order == Order::equal ? s[0] : s[1];
  };
  return made;
}

}  // namespace

std::optional<Operation> comparison_operation(Words words) {
  if (words.base() == "setp") return set_predicates(words);
  if (words.base() == "set") return set_value(words);
  if (words.base() == "selp") return select(words);
  if (words.base() == "slct") return select_by_sign(words);
  return std::nullopt;
}

}  // namespace softgpu::reference
