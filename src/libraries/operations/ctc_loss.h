// The loss of connectionist temporal classification (Graves and others, 2006), and its gradient.
#pragma once

#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// What becomes of a gradient where no way through the steps spells the labels: the loss is infinite.
enum class Impossible : std::uint8_t { zeros = 0, not_written = 1, no_numbers = 2 };

/// Tensors are steps × images × letters; letter 0 is the blank one. The gradient is that of numbers whose
/// softmax the probabilities are. Labels lie one image's after the other's; they and the lengths are 32-bit
/// integers.
struct CtcLoss {
  static constexpr const char* name = "cudnn_ctc_loss";
  static constexpr std::int64_t most_steps = 1 << 20, most_labels = 1 << 16;

  Tensor probabilities;  // or numbers whose softmax they are
  Tensor gradient;       // address 0: not wanted
  std::uint64_t labels = 0, label_lengths = 0, step_lengths = 0;
  std::uint64_t losses = 0;  // one of each image
  Flag softmax = false;
  Impossible impossible = Impossible::zeros;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] bool sound() const {
    const auto fits = [](const Tensor& tensor) {
      return tensor.sound() && tensor.dims == 3 && tensor.type == Element::f32 &&
             tensor.sizes[0] <= most_steps;
    };
    if (!fits(probabilities) || impossible > Impossible::no_numbers) return false;
    if (gradient.address == 0) return true;
    return fits(gradient) && gradient.sizes[0] == probabilities.sizes[0] &&
           gradient.sizes[1] == probabilities.sizes[1] && gradient.sizes[2] == probabilities.sizes[2];
  }
  /// One for each image.
  [[nodiscard]] std::uint64_t parts() const { return static_cast<std::uint64_t>(probabilities.sizes[1]); }
};

}  // namespace gpupool::operations
