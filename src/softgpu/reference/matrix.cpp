// What the whole warp does with matrices: mma, movmatrix, ldmatrix, stmatrix. Where an element lies is what
// the manual draws: with g = lane / 4 and t = lane % 4, elements of a register follow each other along the
// depth of A and B and along the columns of C and D.
#include <algorithm>

#include "softgpu/reference/machine.h"
#include "softgpu/reference/matrix_form.h"

namespace softgpu::reference {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

namespace {

// Sums are formed on integers in units of 2^-80 from elements and scales in units of 2^-20, which are small
// enough for that.
constexpr int unit_exponent = -20, most_bits = 30;

using Matrix = std::vector<std::vector<__int128>>;

std::optional<__int128> in_units(const Number& value) {
  if (value.kind == Number::Kind::zero) return 0;
  if (value.kind != Number::Kind::finite) return std::nullopt;
  const int shift = value.exponent - unit_exponent;
  Bits magnitude = value.significand;
  if (shift < 0) {
    if (shift < -100 || low_bits(magnitude, -shift) != 0) return std::nullopt;
    magnitude >>= -shift;
  } else {
    if (shift > most_bits) return std::nullopt;
    magnitude <<= shift;
  }
  if (magnitude >> most_bits != 0) return std::nullopt;
  const auto number = static_cast<__int128>(magnitude);
  return value.negative ? -number : number;
}

bool is_word(const Step& step, std::string_view word) {
  return std::find(step.suffixes.begin(), step.suffixes.end(), word) != step.suffixes.end();
}

// One or the elements of { }.
std::span<const Operand> registers_of(const Operand& operand) {
  if (operand.kind == OperandKind::vector) return operand.elements;
  return {&operand, 1};
}

}  // namespace

void Machine::complete_mma(const Step& step, std::span<Thread> warp) {
  const MatrixForm form = *matrix_form(step.syntax->opcode);
  const std::vector<Operand>& operands = step.syntax->operands;
  const int register_bits = form.has_wide_registers() ? 64 : 32, halves = form.rows / 8;
  const auto number = [&](Bits bits, const MatrixElement& element) -> __int128 {
    if (element.format == nullptr) {
      NumberType type{
          element.is_signed ? NumberType::Domain::signed_integer : NumberType::Domain::unsigned_integer,
          element.bits, 1, nullptr};
      return integer_value(bits, type);
    }
    const auto value =
        in_units(unpack(static_cast<uint64_t>(low_bits(bits, element.bits) >> element.shift) &
                            static_cast<uint64_t>(low_bits(~Bits{0}, element.format->total_bits())),
                        *element.format));
    if (!value) refuse(step, "an element that makes the sum depend on its order");
    return *value;
  };
  Matrix a(static_cast<size_t>(form.rows), std::vector<__int128>(static_cast<size_t>(form.depth))),
      b(static_cast<size_t>(form.depth), std::vector<__int128>(8));
  const auto each_element = [&](size_t operand, const MatrixElement& element, const auto& use) {
    const std::span<const Operand> registers = registers_of(operands.at(operand));
    const int in_register = register_bits / element.bits;
    for (int lane = 0; lane < 32; ++lane) {
      for (int r = 0; r < static_cast<int>(registers.size()); ++r) {
        const Bits held =
            value(warp[static_cast<size_t>(lane)], registers[static_cast<size_t>(r)], register_bits);
        for (int e = 0; e < in_register; ++e)
          use(lane, r, lane % 4 * in_register + e, 4 * in_register,
              number(held >> (e * element.bits), element));
      }
    }
  };
  each_element(1, form.a, [&](int lane, int r, int along, int stride, __int128 value) {
    a[static_cast<size_t>(lane / 4 + 8 * (r % halves))][static_cast<size_t>(along + stride * (r / halves))] =
        value;
  });
  each_element(2, form.b, [&](int lane, int r, int along, int stride, __int128 value) {
    b[static_cast<size_t>(along + stride * r)][static_cast<size_t>(lane / 4)] = value;
  });
  const bool packed = form.sum == &f16_format;
  const MatrixElement sum_element{packed ? 16 : register_bits, form.sum, 0, true};
  for (int lane = 0; lane < 32; ++lane) {
    Thread& thread = warp[static_cast<size_t>(lane)];
    const auto d = registers_of(operands[0]), c = registers_of(operands.at(3));
    for (size_t r = 0; r < d.size(); ++r) {
      Bits result = 0;
      for (size_t e = 0; e < (packed ? 2u : 1u); ++e) {
        const size_t place = packed ? 2 * r + e : r;
        const size_t row = static_cast<size_t>(lane / 4) + 8 * (place / 2),
                     column = static_cast<size_t>(lane % 4) * 2 + place % 2;
        std::vector<__int128> products;
        for (size_t k = 0; k < a[row].size(); ++k) {
          const __int128 x = a[row][k], y = b[k][column];
          products.push_back(form.product == MatrixForm::Product::xor_bits   ? x ^ y
                             : form.product == MatrixForm::Product::and_bits ? x & y
                                                                             : x * y);
          if (form.sum != nullptr) products.back() *= scale_of_product(step, form, warp, row, column, k);
        }
        const __int128 given = number(value(thread, c[r], register_bits) >> (16 * e), sum_element);
        result |= sum_of_products(step, form, products, given) << (16 * e);
      }
      set(thread, d[r], result);
    }
  }
}

// Operands after d, a, b, c: the scales of A, {byte, thread} of them, those of B, {byte, thread}. In each
// four lanes, lane 2 * thread has the scales of row g of A and the one behind it those of row g + 8; lane
// thread has those of column g of B. In units of unit_exponent, twice.
__int128 Machine::scale_of_product(const Step& step, const MatrixForm& form, std::span<Thread> warp,
                                   size_t row, size_t column, size_t k) {
  if (form.scales == 0) return __int128{1} << -2 * unit_exponent;
  const std::vector<Operand>& operands = step.syntax->operands;
  const auto selected = [&](size_t operand, size_t which) {
    return static_cast<size_t>(value(warp[0], operands.at(operand).elements.at(which), 16));
  };
  const size_t byte_a = selected(5, 0), thread_a = selected(5, 1), byte_b = selected(7, 0),
               thread_b = selected(7, 1);
  const size_t scales = static_cast<size_t>(form.scales),
               block = k / (static_cast<size_t>(form.depth) / scales);
  if (byte_a % scales != 0 || byte_b % scales != 0 || byte_a > 3 || byte_b > 3 || thread_a > 1 ||
      thread_b > 3)
    refuse(step, "no such scale");
  const auto scale = [&](size_t lane, size_t operand, size_t byte) -> __int128 {
    const Bits bits = low_bits(value(warp[lane], operands.at(operand), 32) >> (8 * (byte + block)), 8);
    Number number;
    if (form.exponent_scales) {
      number.kind = bits == 0xff ? Number::Kind::nan : Number::Kind::finite;
      number.exponent = static_cast<int>(bits) - 127;
      number.significand = 1;
    } else {
      number = unpack(static_cast<uint64_t>(low_bits(bits, 7)), e4m3_format);
    }
    const auto made = in_units(number);
    if (!made) refuse(step, "a scale that makes the sum depend on its order");
    return *made;
  };
  return scale(row % 8 * 4 + 2 * thread_a + row / 8, 4, byte_a) * scale(column * 4 + thread_b, 6, byte_b);
}

Bits Machine::sum_of_products(const Step& step, const MatrixForm& form, const std::vector<__int128>& products,
                              __int128 given) {
  __int128 sum = form.sum != nullptr ? given << -3 * unit_exponent : given;
  __int128 magnitude = sum < 0 ? -sum : sum, all = magnitude;
  for (const __int128 product : products) {
    sum += product;
    magnitude += product < 0 ? -product : product;
    all |= product < 0 ? -product : product;
  }
  if (form.sum == nullptr) {
    const NumberType s32{NumberType::Domain::signed_integer, 32, 1, nullptr};
    if (form.saturates && clamp_to(magnitude, s32) != magnitude)
      refuse(step, "where it saturates depends on the order of the sum");
    return low_bits(static_cast<Bits>(sum), 32);
  }
  // Exact in any order if all terms together fit into the significand, in units of the smallest bit of any.
  while (all != 0 && (all & 1) == 0) {
    all >>= 1;
    magnitude >>= 1;
  }
  if (magnitude >> (form.sum->fraction_bits + 1) != 0) refuse(step, "the sum depends on its order");
  Number result;
  result.kind = sum == 0 ? Number::Kind::zero : Number::Kind::finite;
  result.negative = sum < 0 || (sum == 0 && form.rounding == Rounding::down);
  result.exponent = 4 * unit_exponent;
  result.significand = static_cast<Bits>(sum < 0 ? -sum : sum);
  return pack(result, *form.sum, form.rounding);
}

// d = the transpose of a; a register is two elements of a row of 8.
void Machine::complete_movmatrix(const Step& step, std::span<Thread> warp) {
  Bits elements[8][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const Bits held = value(warp[lane], step.syntax->operands.at(1), 32);
    for (uint32_t e = 0; e < 2; ++e) elements[lane / 4][lane % 4 * 2 + e] = low_bits(held >> (16 * e), 16);
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    set(warp[lane], step.syntax->operands[0], elements[column][row] | elements[column + 1][row] << 16);
  }
}

// ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans][.shared].b16 {d}, [p]; stmatrix the other way. Lane 8 m + i
// says where row i of matrix m lies.
void Machine::complete_matrix_access(const Step& step, std::span<Thread> warp) {
  const bool loads = step.syntax->opcode.starts_with("ld"), transposed = is_word(step, "trans");
  if (!is_word(step, "m8n8") || step.suffixes.back() != "b16") refuse(step, "is not in the reference");
  const std::vector<Operand>& operands = step.syntax->operands;
  const std::span<const Operand> registers = registers_of(operands.at(loads ? 0 : 1));
  const Operand& at = operands.at(loads ? 1 : 0);
  const bool is_shared = std::any_of(step.suffixes.begin(), step.suffixes.end(),
                                     [](std::string_view s) { return s.starts_with("shared"); });
  const Space space = is_shared ? Space::shared : Space::generic;
  for (uint32_t m = 0; m < registers.size(); ++m) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      Bits loaded = 0;
      const Bits held = loads ? 0 : value(warp[lane], registers[m], 32);
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t along = lane % 4 * 2 + e, across = lane / 4;
        const uint32_t row = transposed ? along : across, column = transposed ? across : along;
        Thread& owner = warp[8 * m + row];
        const uint64_t row_begins = address(owner, at, space);
        if (row_begins % 16 != 0) refuse(step, "misaligned access");
        if (loads) {
          loaded |= load(owner, row_begins + 2 * column, 2, 2) << (16 * e);
        } else {
          store(owner, row_begins + 2 * column, low_bits(held >> (16 * e), 16), 2, 2);
        }
      }
      if (loads) set(warp[lane], registers[m], loaded);
    }
  }
}

}  // namespace softgpu::reference
