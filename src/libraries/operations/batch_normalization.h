// Batch normalisation: with given statistics, with those of the batch, and the gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

enum class NormalizationDirection : std::uint8_t { inference = 0, training = 1, backward = 2 };

/// y = alpha · activation(scale · (x − mean) / √(variance + epsilon) + bias + z) + beta · y.
struct BatchNormalization {
  static constexpr const char* name = "cudnn_batch_normalization";

  Tensor x, y, z;     // z, if any, is added; y of the gradients: what was made, where it was activated
  Tensor dy, dx, dz;  // of gradients
  /// The shape of what there is one of for each channel, or for each channel and place; it has no address.
  Tensor parameters;
  std::uint64_t scale = 0, bias = 0;
  /// Inference: what x is normalised by. Training: the running ones; 0: they are not kept.
  std::uint64_t mean = 0, variance = 0;
  /// Training: where those of the batch go; gradients: where they lie. 0: nowhere.
  std::uint64_t saved_mean = 0, saved_deviation = 0;  // 1 / √(variance + epsilon)
  std::uint64_t scale_gradient = 0, bias_gradient = 0;
  double alpha = 1, beta = 0, alpha_parameters = 1, beta_parameters = 0;
  double epsilon = 0, running_factor = 0;
  NormalizationDirection direction = NormalizationDirection::inference;
  Flag rectified = false;  // the activation
  std::uint8_t reserved[6] = {};

  [[nodiscard]] bool sound() const {
    for (const Tensor* const tensor : {&x, &y, &z, &dy, &dx, &dz, &parameters}) {
      if (!tensor->sound()) return false;
    }
    return true;
  }
  /// Channels of one part.
  [[nodiscard]] std::int64_t block() const {
    constexpr std::int64_t elements_at_a_time = 1 << 15;
    const std::int64_t of_each = std::max<std::int64_t>(x.elements() / parameters.elements(), 1);
    return std::max<std::int64_t>(elements_at_a_time / of_each, 1);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((parameters.elements() + block() - 1) / block());
  }
};

}  // namespace gpupool::operations
