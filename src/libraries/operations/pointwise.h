// What is done to the elements of tensors one by one.
#pragma once

#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// How a number is made of those at the same place of `a`, `b` and `c`.
enum class Combine : std::uint8_t {
  first = 0,  // of `a`; alpha_a itself where there is no `a`
  add,        // a + b
  multiply,   // a · b
  minimum,
  maximum,
  square_root,  // of a
  complement,   // 1 − a
  gradient,     // a is that of the activation's result c, whose argument is b
  subtract,
  divide,
};

/// target = alpha · activation(combine(alpha_a · a, alpha_b · b, c)) + beta · target. Sizes of 1 are
/// repeated.
struct Pointwise {
  static constexpr const char* name = "cudnn_pointwise";
  static constexpr std::int64_t block = 1 << 15;  // elements of a part

  Tensor a, b, c, target;
  double alpha_a = 1, alpha_b = 1, alpha = 1, beta = 0;
  Activated activation;
  Combine combine = Combine::first;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] bool sound() const { return a.sound() && b.sound() && c.sound() && target.sound(); }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((target.elements() + block - 1) / block);
  }
};

}  // namespace gpupool::operations
