// The geometry of a convolution: where each result reads, by axis; and which positions a block has.
#pragma once

#include <cstdint>
#include <vector>

#include "libraries/operations/convolution.h"

namespace softgpu::libraries {

using gpupool::operations::Convolution;
using gpupool::operations::ConvolutionDirection;
using gpupool::operations::Tensor;

/// One axis of space. Result `j` lies at `first + j · step`; by a tap it reads the source at
/// `j · read_step + tap.offset`, where that is within the source.
struct Axis {
  struct Tap {
    std::int64_t offset, index;  // `index`: in the filter's memory
  };
  std::int64_t count = 0;
  std::int64_t first = 0, step = 1;
  std::int64_t read_step = 1;
  std::int64_t source = 0;  // its size
  std::vector<Tap> taps;
};

/// All axes of one phase: gradients of the input whose positions have the same residues by the stride read
/// the same taps, so that nothing is computed that is not used.
struct Axes {  // NOLINT(readability-identifier-naming): the compiler copies the array with a variable of its
               // own
  Axis of[Convolution::space];

  [[nodiscard]] std::int64_t positions() const { return of[0].count * of[1].count * of[2].count; }
  [[nodiscard]] std::int64_t taps() const {
    return static_cast<std::int64_t>(of[0].taps.size() * of[1].taps.size() * of[2].taps.size());
  }
};

inline Axes axes_of(const Convolution& op, std::int64_t phase) {
  Axes made;
  const bool to_input = op.direction == ConvolutionDirection::backward_data;
  for (int d = Convolution::space - 1; d >= 0; --d) {
    Axis& axis = made.of[d];
    const std::int64_t stride = op.stride[d], size = op.filter.sizes[2 + d];
    const auto index_of = [&](std::int64_t tap) { return op.flipped ? size - 1 - tap : tap; };
    if (!to_input) {
      axis.count = op.output.sizes[2 + d];
      axis.read_step = stride;
      axis.source = op.input.sizes[2 + d];
      for (std::int64_t tap = 0; tap < size; ++tap)
        axis.taps.push_back({tap * op.dilation[d] - op.padding[d], index_of(tap)});
      continue;
    }
    const std::int64_t whole = op.input.sizes[2 + d], residues = std::min(stride, whole);
    axis.first = phase % residues;
    phase /= residues;
    axis.step = stride;
    axis.count = (whole - axis.first + stride - 1) / stride;
    axis.source = op.output.sizes[2 + d];
    for (std::int64_t tap = 0; tap < size; ++tap) {
      const std::int64_t at = axis.first + op.padding[d] - tap * op.dilation[d];
      if (at % stride == 0) axis.taps.push_back({at / stride, index_of(tap)});
    }
  }
  return made;
}

/// Results that lie side by side on the last axis.
struct Run {
  std::int64_t image, d, h, w, count;
  std::int64_t at;  // in the block
};

/// Positions [from, to) of all images.
inline void runs_of(const Axes& axes, std::int64_t from, std::int64_t to, std::vector<Run>& runs) {
  runs.clear();
  const std::int64_t width = axes.of[2].count, height = axes.of[1].count, depth = axes.of[0].count;
  for (std::int64_t p = from; p < to;) {
    const std::int64_t w = p % width, row = p / width;
    const std::int64_t count = std::min(width - w, to - p);
    runs.push_back({row / height / depth, row / height % depth, row % height, w, count, p - from});
    p += count;
  }
}

/// Where a run's first result lies in a tensor of the results' shape, channel 0.
inline std::int64_t offset_of(const Run& run, const Axes& axes, const Tensor& tensor) {
  return run.image * tensor.strides[0] + (axes.of[0].first + run.d * axes.of[0].step) * tensor.strides[2] +
         (axes.of[1].first + run.h * axes.of[1].step) * tensor.strides[3] +
         (axes.of[2].first + run.w * axes.of[2].step) * tensor.strides[4];
}

/// The distance of successive positions in a tensor of the results' shape, if it is always the same, else 0.
inline std::int64_t distance_of(const Axes& axes, const Tensor& tensor, bool of_several_images) {
  std::int64_t distance = 0, next = 0;
  for (int d = 3; d >= 0; --d) {
    const bool image = d == 0;
    if (image && !of_several_images) break;
    const std::int64_t count = image ? tensor.sizes[0] : axes.of[d - 1].count;
    const std::int64_t stride = image ? tensor.strides[0] : tensor.strides[d + 1] * axes.of[d - 1].step;
    if (count == 1) continue;
    if (stride == 0) return 0;
    if (distance == 0) {
      distance = next = stride;
    } else if (stride != next) {
      return 0;
    }
    next *= count;
  }
  return distance == 0 ? 1 : distance;
}

}  // namespace softgpu::libraries
