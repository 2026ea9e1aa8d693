// What an mma's name says: how many rows and how deep, of what its elements are, and how they lie in
// registers.
#pragma once

#include <optional>
#include <string_view>

#include "softgpu/reference/operation.h"

namespace softgpu::reference {

struct MatrixElement {
  int bits = 0;                         // that it takes in a register
  const FloatFormat* format = nullptr;  // null: an integer
  int shift = 0;                        // of the format's bits in the element's
  bool is_signed = false;
};

struct MatrixForm {
  int rows = 0, depth = 0;  // the third extent is 8
  MatrixElement a, b;
  const FloatFormat* sum = nullptr;  // of C and D; null: s32
  bool saturates = false;
  enum class Product : uint8_t { multiply, xor_bits, and_bits } product = Product::multiply;
  Rounding rounding = Rounding::nearest_even;
  // .block_scale: how many scales a row of A and a column of B have, each for its part of the depth; 0: none.
  int scales = 0;
  bool exponent_scales = false;  // ue8m0; else ue4m3

  [[nodiscard]] int a_registers() const { return registers(rows * depth, a.bits); }
  [[nodiscard]] int b_registers() const { return registers(depth * 8, b.bits); }
  [[nodiscard]] int sum_registers() const { return registers(rows * 8, sum == &f16_format ? 16 : 32); }
  [[nodiscard]] bool has_wide_registers() const { return sum == &f64_format; }

 private:
  [[nodiscard]] int registers(int elements, int bits) const {
    return has_wide_registers() ? elements / 32 : elements * bits / 1024;
  }
};

[[nodiscard]] std::optional<MatrixForm> matrix_form(std::string_view opcode);

}  // namespace softgpu::reference
