// Softmax and its gradient, along channels or along all but the images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// y = alpha · softmax(x) + beta · y; or, with dy, dx = alpha · the gradient + beta · dx, which `x` stands
/// for.
struct Softmax {
  static constexpr const char* name = "cudnn_softmax";

  Tensor x, y, dy;
  double alpha = 1, beta = 0;
  Flag logarithm = false;
  Flag of_instance = false;  // along channels and places
  Flag backward = false;
  std::uint8_t reserved[5] = {};

  [[nodiscard]] bool sound() const { return x.sound() && y.sound() && dy.sound() && y.dims >= 2; }
  [[nodiscard]] std::int64_t sums() const {
    return std::max<std::int64_t>(
        of_instance ? y.sizes[0] : y.elements() / std::max<std::int64_t>(y.sizes[1], 1), 1);
  }
  /// Sums of one part.
  [[nodiscard]] std::int64_t block() const {
    constexpr std::int64_t elements_at_a_time = 1 << 14;
    return std::max<std::int64_t>(elements_at_a_time / std::max<std::int64_t>(y.elements() / sums(), 1), 1);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((sums() + block() - 1) / block());
  }
};

}  // namespace gpupool::operations
