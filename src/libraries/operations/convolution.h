// Convolutions of up to three spatial dimensions: forward, and the gradients of the input and of the filter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

enum class ConvolutionDirection : std::uint8_t { forward = 0, backward_data = 1, backward_filter = 2 };

/// Into which blocks a convolution is divided: by its shape alone. In a product of one group, rows are
/// channels of what is computed; columns are its positions or, for the filter, the input's channels.
struct ConvolutionBlocks {
  std::int64_t rows, inner, taps;  // `inner`: channels of the other side
  std::int64_t phases;             // backward data: residues of a position by the stride, computed apart
  std::int64_t positions, images;  // of one phase and one image
  std::int64_t block_rows, block_columns;
  std::int64_t parts_rows, parts_columns;
  std::int64_t parts_of_image;  // 0: blocks of positions go on in the next image
};

/// target = activation(alpha · convolution + beta · added + bias). Each tensor has five dimensions: images
/// (filters), channels and three of space, the first of them of size 1 where there are fewer.
struct Convolution {
  static constexpr const char* name = "cudnn_convolution";
  static constexpr int space = 3;

  /// The same roles in each direction; the direction says which one is computed.
  Tensor input, filter, output;
  Tensor added;  // of the shape of what is computed
  Tensor bias;   // one element for each channel of what is computed
  std::int64_t padding[space] = {}, stride[space] = {1, 1, 1}, dilation[space] = {1, 1, 1};
  std::int64_t groups = 1;
  double alpha = 1, beta = 0;
  Activated activation;
  ConvolutionDirection direction = ConvolutionDirection::forward;
  Flag flipped = false;   // a convolution in place of a cross-correlation
  std::uint8_t math = 0;  // cudnnMathType_t
  std::uint8_t reserved[5] = {};

  static constexpr std::uint8_t any_math = 0, tensor_cores = 1, no_tensor_cores = 3;

  [[nodiscard]] const Tensor& target() const {
    return direction == ConvolutionDirection::forward         ? output
           : direction == ConvolutionDirection::backward_data ? input
                                                              : filter;
  }
  /// Shapes fit each other, too, so that no product of what `blocks` computes leaves 64 bits.
  [[nodiscard]] bool sound() const {
    for (const Tensor* const tensor : {&input, &filter, &output}) {
      if (!tensor->sound() || tensor->dims != 2 + space) return false;
    }
    constexpr std::int64_t most = std::int64_t{1} << 30;
    const auto within = [](std::int64_t value, std::int64_t least) {
      return value >= least && value <= most;
    };
    for (int d = 0; d < space; ++d) {
      if (!within(stride[d], 1) || !within(dilation[d], 1) || !within(padding[d], 0)) return false;
      if (!within(input.sizes[2 + d], 1) || !within(filter.sizes[2 + d], 1) ||
          !within(output.sizes[2 + d], 1))
        return false;
    }
    return direction <= ConvolutionDirection::backward_filter && math <= no_tensor_cores && groups >= 1 &&
           filter.sizes[0] % groups == 0 && input.sizes[1] % groups == 0 &&
           input.sizes[1] / groups == filter.sizes[1] && output.sizes[1] == filter.sizes[0] &&
           output.sizes[0] == input.sizes[0] && added.sound() && bias.sound();
  }
  [[nodiscard]] ConvolutionBlocks blocks() const;
  [[nodiscard]] std::uint64_t parts() const {
    const ConvolutionBlocks made = blocks();
    return parts_of({groups, made.phases, made.parts_rows, made.parts_columns});
  }
};

inline ConvolutionBlocks Convolution::blocks() const {
  const auto pieces = [](std::int64_t whole, std::int64_t block) { return (whole + block - 1) / block; };
  ConvolutionBlocks made{};
  const std::int64_t filters = filter.sizes[0] / groups;
  made.taps = filter.sizes[2] * filter.sizes[3] * filter.sizes[4];
  made.images = output.sizes[0];
  made.phases = 1;
  const bool to_filter = direction == ConvolutionDirection::backward_filter;
  const bool to_input = direction == ConvolutionDirection::backward_data;
  made.rows = to_input ? filter.sizes[1] : filters;
  made.inner = to_input ? filters : filter.sizes[1];
  made.positions = 1;
  std::int64_t taps_of_phase = made.taps;
  for (int d = 0; d < space; ++d) {
    const std::int64_t steps = to_input ? std::min(stride[d], input.sizes[2 + d]) : 1;
    made.phases *= steps;
    made.positions *= to_input ? pieces(input.sizes[2 + d], stride[d]) : output.sizes[2 + d];
    taps_of_phase = pieces(taps_of_phase, steps);
  }
  constexpr std::int64_t elements_at_a_time = 1 << 18, least_positions = 64, most_positions = 4096;
  constexpr std::int64_t parts_wished = 16, least_rows = 32;
  if (to_filter) {
    // Each part sums over all positions.
    made.block_columns = pieces(made.inner, pieces(parts_wished, groups));
    made.parts_columns = pieces(made.inner, made.block_columns);
  } else {
    made.block_columns =
        std::clamp(elements_at_a_time / std::max<std::int64_t>(made.inner * taps_of_phase, 1),
                   least_positions, most_positions);
    const bool within_images = made.positions >= made.block_columns;
    const std::int64_t columns = within_images ? made.positions : made.images * made.positions;
    const std::int64_t parts = pieces(columns, made.block_columns);
    made.block_columns = pieces(columns, parts);  // of equal size
    made.parts_of_image = within_images ? parts : 0;
    made.parts_columns = within_images ? parts * made.images : parts;
  }
  made.block_rows = made.rows;
  const std::int64_t others = groups * made.phases * made.parts_columns;
  if (others < parts_wished)
    made.block_rows = std::max(least_rows, pieces(made.rows, pieces(parts_wished, others)));
  made.parts_rows = pieces(made.rows, made.block_rows);
  return made;
}

}  // namespace gpupool::operations
