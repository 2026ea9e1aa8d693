// Discrete Fourier transforms: one dimension of a transform of cuFFT. A transform of several dimensions is
// one operation for each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

enum class FftPrecision : std::uint8_t { half = 0, single_ = 1, double_ = 2 };

/// What a line's elements are before and after. A line of n real numbers has n / 2 + 1 complex ones.
enum class FftKind : std::uint8_t { complex = 0, real_to_complex = 1, complex_to_real = 2 };

/// Lines that differ in one index. Strides count elements of their side: real or complex numbers.
struct FftLoop {
  std::int64_t count = 1;
  std::int64_t input_stride = 0, output_stride = 0;
};

/// Every line of `length` numbers becomes its transform, sum over j of x[j] · e^(sign · 2πi · j · k /
/// length), with no factor before it. Input and output are the same memory, or do not overlap.
struct Fft {
  static constexpr const char* name = "cufft_transform";
  static constexpr int max_loops = 4;

  std::uint64_t input = 0, output = 0;
  std::int64_t length = 1;
  std::int64_t input_stride = 1, output_stride = 1;
  FftLoop loops[max_loops];  // the first one's lines are computed together
  /// Not 0: output k of the line with index i in the first loop is then multiplied by
  /// e^(sign · 2πi · i · k / twiddle). With it, a long line is made of two operations on short ones.
  std::int64_t twiddle = 0;
  std::int32_t sign = -1;
  FftPrecision precision = FftPrecision::single_;
  FftKind kind = FftKind::complex;
  /// The second of those two. A library that transforms long lines itself did that with the first one, to
  /// where this one reads, and brings them to where it writes.
  Flag after_columns = false;
  std::uint8_t reserved[1] = {};

  /// Of the first loop; by the shape alone, so that results are the same everywhere.
  [[nodiscard]] std::int64_t lines_of_a_part() const {
    constexpr std::int64_t numbers = 1 << 16, together = 8;
    return std::max(numbers / std::max<std::int64_t>(length, 1) / together * together, together);
  }
  [[nodiscard]] std::int64_t parts_of_first() const {
    const std::int64_t lines = lines_of_a_part();
    return loops[0].count / lines + (loops[0].count % lines != 0 ? 1 : 0);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return parts_of({parts_of_first(), loops[1].count, loops[2].count, loops[3].count});
  }
};

}  // namespace gpupool::operations
