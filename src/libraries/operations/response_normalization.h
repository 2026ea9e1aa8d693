// Local response normalisation across channels (AlexNet's), and its gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// With s = k + coefficient / window · the sum of x² over the window's channels: y = alpha · x / s^exponent +
/// beta · y; backward: dx = alpha · the gradient + beta · dx. Tensors have five dimensions, as those of
/// convolutions.
struct ResponseNormalization {
  static constexpr const char* name = "cudnn_response_normalization";
  static constexpr int space = 3;
  static constexpr std::int64_t most_window = 64;

  Tensor x, y, dy, dx;
  std::int64_t window = 5;  // of channels: (window - 1) / 2 of them are before its own
  double coefficient = 1e-4, exponent = 0.75, k = 2;
  double alpha = 1, beta = 0;
  Flag backward = false;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] bool sound() const {
    for (const Tensor* const tensor : {&x, &y, &dy, &dx}) {
      if (!tensor->sound() || (tensor->dims != 2 + space && (tensor == &x || tensor->address != 0)))
        return false;
    }
    return window >= 1 && window <= most_window;
  }
  [[nodiscard]] std::int64_t before() const { return (window - 1) / 2; }
  [[nodiscard]] std::int64_t behind() const { return window - 1 - before(); }
  /// Lines: all channels of what lies side by side in an image.
  [[nodiscard]] std::int64_t lines() const { return x.sizes[0] * x.sizes[2] * x.sizes[3]; }
  /// Lines of one part.
  [[nodiscard]] std::int64_t block() const {
    constexpr double elements_at_a_time = 1 << 15;
    const double line = static_cast<double>(x.sizes[1]) * static_cast<double>(x.sizes[4]);
    return static_cast<std::int64_t>(std::max(elements_at_a_time / line, 1.0));
  }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((lines() + block() - 1) / block());
  }
};

}  // namespace gpupool::operations
