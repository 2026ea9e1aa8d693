// Pooling of up to three spatial dimensions, and its gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

enum class Pool : std::uint8_t { maximum = 0, average_with_padding = 1, average = 2 };

/// y = alpha · pooling(x) + beta · y; backward: dx = alpha · the gradient + beta · dx. Tensors have five
/// dimensions, as those of convolutions.
struct Pooling {
  static constexpr const char* name = "cudnn_pooling";
  static constexpr int space = 3;

  Tensor x, y, dy, dx;
  std::int64_t window[space] = {1, 1, 1}, padding[space] = {}, stride[space] = {1, 1, 1};
  double alpha = 1, beta = 0;
  Pool pool = Pool::maximum;
  Flag backward = false;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] bool sound() const {
    for (const Tensor* const tensor : {&x, &y, &dy, &dx}) {
      if (!tensor->sound() || (tensor->dims != 2 + space && (tensor == &x || tensor->address != 0)))
        return false;
    }
    constexpr std::int64_t most = std::int64_t{1} << 31;
    for (int d = 0; d < space; ++d) {
      if (window[d] < 1 || window[d] > most || stride[d] < 1 || stride[d] > most || padding[d] < 0 ||
          padding[d] > most) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::int64_t planes() const { return x.sizes[0] * x.sizes[1]; }
  /// Planes of one part.
  [[nodiscard]] std::int64_t block() const {
    constexpr std::int64_t elements_at_a_time = 1 << 14;
    return std::max<std::int64_t>(elements_at_a_time / (x.sizes[2] * x.sizes[3] * x.sizes[4]), 1);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((planes() + block() - 1) / block());
  }
};

}  // namespace gpupool::operations
