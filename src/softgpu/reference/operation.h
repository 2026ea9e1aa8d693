// What an opcode computes from its operands' values: the PTX manual's words as functions on integers of any
// width. Shares nothing with the interpreter's handlers. Control, memory and what lanes do together are the
// machine's (machine.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/reference/exact_float.h"

namespace softgpu::reference {

// How far a result is defined.
enum class Exactness : uint8_t {
  bits,     // every bit
  any_nan,  // a NaN may be any NaN of `format`
  bounded,  // only by an error bound
};

struct Operation {
  // In bits, in the order of the instruction's operands; 1 is a predicate. A second result may be left out.
  std::vector<int> results, sources;
  bool reads_carry = false, writes_carry = false;  // then the last source, the last result of `evaluate`
  Exactness exactness = Exactness::bits;
  const FloatFormat* format = nullptr;  // of the result, or of each of `parts` parts of it
  int parts = 1;
  const FloatFormat* source_format = nullptr;  // what makes interesting operands; null: integers
  std::vector<bool> nonzero;                   // sources that must not be zero (a divisor)
  int source_limit = 0;                        // sources must be below it; 0: any
  std::function<void(const Bits* sources, Bits* results)> evaluate;
  // For `bounded`: is `got` a result that the manual allows?
  std::function<bool(const Bits* sources, Bits got)> allows;
};

// Null for what this reference does not know.
[[nodiscard]] const Operation* find_operation(std::string_view full_name);

// --- for the families' files ---

struct NumberType {
  enum class Domain : uint8_t { bits, unsigned_integer, signed_integer, floating, predicate };
  Domain domain = Domain::bits;
  int bits = 32;                        // of one part
  int parts = 1;                        // 2: packed
  const FloatFormat* format = nullptr;  // floating only
  [[nodiscard]] bool is_signed() const { return domain == Domain::signed_integer; }
  [[nodiscard]] bool is_float() const { return domain == Domain::floating; }
  [[nodiscard]] int register_bits() const { return bits * parts; }
};
[[nodiscard]] std::optional<NumberType> number_type(std::string_view name);

// An opcode's words: the base, then suffixes that are taken off one by one; what is left over was not known.
class Words {
 public:
  explicit Words(std::string_view full_name);
  [[nodiscard]] std::string_view base() const { return base_; }
  bool take(std::string_view suffix);
  // The one of `suffixes` that comes next, or nothing.
  std::string_view take_one_of(std::initializer_list<std::string_view> suffixes);
  std::optional<NumberType> take_type();       // that comes next
  std::optional<NumberType> take_last_type();  // from the end
  std::optional<Rounding> take_rounding();     // .rn .rz .rm .rp .rna
  [[nodiscard]] bool empty() const { return suffixes_.empty(); }

 private:
  std::string_view base_;
  std::vector<std::string_view> suffixes_;
};

[[nodiscard]] constexpr Bits low_bits(Bits value, int count) {
  return count >= 128 ? value : value & ((Bits{1} << count) - 1);
}
// The integer that a register's bits mean.
[[nodiscard]] __int128 integer_value(Bits bits, const NumberType& type);
[[nodiscard]] __int128 clamp_to(__int128 value, const NumberType& type);

[[nodiscard]] std::optional<Operation> integer_operation(Words words);
[[nodiscard]] std::optional<Operation> bit_operation(Words words);
[[nodiscard]] std::optional<Operation> float_operation(Words words);
[[nodiscard]] std::optional<Operation> approximate_operation(Words words);
[[nodiscard]] std::optional<Operation> comparison_operation(Words words);
[[nodiscard]] std::optional<Operation> conversion_operation(Words words);

}  // namespace softgpu::reference
