// Quotients and remainders of integers. Division by zero gives all ones, its remainder the dividend; by -1
// nothing overflows.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {

// Of one number for all lanes.
Value Emitter::divided(const Value& a, const Value& b, bool is_signed, bool remainder) {
  const Form one{true};
  const std::string t = one.integer(a.size), zero = set("icmp eq " + t + " " + b.text + ", 0");
  std::string special = zero;
  if (is_signed) special = set("or i1 " + zero + ", " + set("icmp eq " + t + " " + b.text + ", -1"));
  const std::string divisor = set("select i1 " + special + ", " + t + " 1, " + t + " " + b.text);
  std::string result = set((remainder ? (is_signed ? "srem " : "urem ") : (is_signed ? "sdiv " : "udiv ")) +
                           t + " " + a.text + ", " + divisor);
  if (is_signed) {
    const std::string minus = remainder ? "0" : set("sub " + t + " 0, " + a.text);
    result = set("select i1 " + special + ", " + t + " " + minus + ", " + t + " " + result);
  }
  result = set("select i1 " + zero + ", " + t + " " + (remainder ? a.text : "-1") + ", " + t + " " + result);
  return scalar_value(a.size, result);
}

// Of 32 bits in each lane. Processors divide vectors of doubles alone, and for integers of 32 bits that is
// exact: a quotient that is no integer is further from the next one than its rounding reaches, since the
// distance is at least 1 / divisor and the rounding at most quotient * 2^-53.
Value Emitter::divided_in_lanes(const Value& a, const Value& b, bool is_signed, bool remainder) {
  const std::string t = "<32 x i32>", d = "<32 x double>";
  const auto of_all = [](uint32_t number) { return Form{false}.literal('w', number); };
  const auto choose = [&](const std::string& condition, const std::string& yes, const std::string& no) {
    return set("select <32 x i1> " + condition + ", " + t + " " + yes + ", " + t + " " + no);
  };
  const std::string x = vector(a), y = vector(b), zero = set("icmp eq " + t + " " + y + ", " + of_all(0));
  std::string special = zero;
  if (is_signed) {
    const std::string minus_one = set("icmp eq " + t + " " + y + ", " + of_all(full_mask));
    special = set("or <32 x i1> " + zero + ", " + minus_one);
  }
  const std::string divisor = choose(special, of_all(1), y);
  const auto as_double = [&](const std::string& value) {
    return set((is_signed ? "sitofp " : "uitofp ") + t + " " + value + " to " + d);
  };
  const std::string exact = set("fdiv " + d + " " + as_double(x) + ", " + as_double(divisor));
  const std::string quotient = set((is_signed ? "fptosi " : "fptoui ") + d + " " + exact + " to " + t);
  std::string result = quotient;
  if (remainder)
    result = set("sub " + t + " " + x + ", " + set("mul " + t + " " + quotient + ", " + divisor));
  if (is_signed) {
    const std::string minus = remainder ? of_all(0) : set("sub " + t + " " + of_all(0) + ", " + x);
    result = choose(special, minus, result);
  }
  return vector_value('w', choose(zero, remainder ? x : of_all(full_mask), result));
}

}  // namespace softgpu::jit
