// Tensors: where elements of several dimensions lie in device memory, and what is done to each of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

inline constexpr int max_dims = 8;

/// Element (i, j, …) lies at `address` + (i · strides[0] + j · strides[1] + …) elements. Address 0: absent.
struct Tensor {
  std::uint64_t address = 0;
  std::int64_t sizes[max_dims] = {}, strides[max_dims] = {};
  Element type = Element::f32;
  std::uint8_t dims = 0;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (int i = 0; i < std::min<int>(dims, max_dims); ++i) count *= sizes[i];
    return count;
  }
  /// Whether it can be computed with: no size is less than 1, there are not more elements than memory has
  /// bytes, and none of them lies further away than that, also where there is no memory.
  [[nodiscard]] bool sound() const {
    if (dims > max_dims) return false;
    std::int64_t count = 1;
    for (int i = 0; i < dims; ++i) {
      if (sizes[i] < 1 || sizes[i] > max_size || __builtin_mul_overflow(count, sizes[i], &count))
        return false;
      std::int64_t reach = 0;
      if (__builtin_mul_overflow(sizes[i], strides[i], &reach) || reach > max_size || reach < -max_size)
        return false;
    }
    return count <= max_size;
  }
};

/// What becomes of a number.
enum class Activation : std::uint8_t {
  identity = 0,
  sigmoid,
  relu,
  tanh,
  clipped_relu,  // min(max(x, lower), upper)
  elu,           // x, or coefficient · (eˣ − 1) where it is negative
  swish,         // x · sigmoid(coefficient · x)
  gelu,
  gelu_tanh,  // the approximation by a hyperbolic tangent
  softplus,
};

struct Activated {
  double coefficient = 0, lower = 0, upper = 0;
  Activation activation = Activation::identity;
  std::uint8_t reserved[7] = {};
};

}  // namespace gpupool::operations
