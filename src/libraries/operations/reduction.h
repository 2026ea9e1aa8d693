// Reductions of a tensor along the axes where the result has size 1.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// The numbers of cudnnReduceTensorOp_t.
enum class Reduce : std::uint8_t {
  add = 0,
  multiply = 1,
  minimum = 2,
  maximum = 3,
  maximum_size = 4,
  average = 5,
  sum_of_sizes = 6,
  euclidean = 7,
  multiply_without_zeros = 8,
};

/// target = alpha · reduction(source) + beta · target.
struct Reduction {
  static constexpr const char* name = "cudnn_reduction";

  Tensor source, target;
  double alpha = 1, beta = 0;
  /// Where the place of each minimum or maximum goes, as a number of 32 bits: its index among the elements
  /// that were reduced. 0: nowhere.
  std::uint64_t indices = 0;
  Reduce operation = Reduce::add;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] bool sound() const { return source.sound() && target.sound(); }
  /// Results of one part.
  [[nodiscard]] std::int64_t block() const {
    constexpr std::int64_t elements_at_a_time = 1 << 16;
    const std::int64_t of_each = std::max<std::int64_t>(source.elements() / target.elements(), 1);
    return std::max<std::int64_t>(elements_at_a_time / of_each, 1);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>((target.elements() + block() - 1) / block());
  }
};

}  // namespace gpupool::operations
