// Scores of some rows and columns of one head, and which of them count.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "libraries/operations/attention.h"
#include "libraries/operations/philox.h"
#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {

using gpupool::operations::Attention;

/// Rows of numbers, one after the other.
using AttentionRows = std::vector<float>;

/// [first, end).
struct AttentionRange {
  std::int64_t first = 0, end = 0;
  [[nodiscard]] std::int64_t count() const { return std::max<std::int64_t>(end - first, 0); }
};

inline std::size_t attention_size(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

// Products of rows: `into` is rows × columns, `inner` numbers are added up.
/// into = a · bᵀ.
inline void multiply_turned(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                            const float* b, float* into, std::int64_t distance) {
  gemm(Trans::transpose, Trans::none, columns, rows, inner, 1.0F, b, inner, a, inner, 0.0F, into, distance);
}
/// into += a · b, where the rows of a are `distance` apart.
inline void add_product(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                        std::int64_t distance, const float* b, float* into) {
  gemm(Trans::none, Trans::none, columns, rows, inner, 1.0F, b, columns, a, distance, 1.0F, into, columns);
}
/// into += aᵀ · b, where a is inner × rows.
inline void add_turned_product(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                               const float* b, float* into) {
  gemm(Trans::none, Trans::transpose, columns, rows, inner, 1.0F, b, columns, a, rows, 1.0F, into, columns);
}

/// Some steps of one head.
inline void read_steps(const Tensor& tensor, std::int64_t image, std::int64_t head,
                       const AttentionRange& steps, AttentionRows& into) {
  const std::int64_t width = tensor.sizes[3], base = image * tensor.strides[0] + head * tensor.strides[1];
  into.resize(attention_size(steps.count(), width));
  for (std::int64_t i = 0; i < steps.count(); ++i)
    read_row(tensor, base + (steps.first + i) * tensor.strides[2], tensor.strides[3], width,
             into.data() + i * width);
}
inline void write_steps(const Tensor& tensor, std::int64_t image, std::int64_t head,
                        const AttentionRange& steps, const AttentionRows& from) {
  const std::int64_t width = tensor.sizes[3], base = image * tensor.strides[0] + head * tensor.strides[1];
  for (std::int64_t i = 0; i < steps.count(); ++i)
    write_row(tensor, base + (steps.first + i) * tensor.strides[2], tensor.strides[3], width,
              from.data() + i * width);
}

/// What all parts of an operation ask for. Its operands have been checked.
class AttentionScores {
 public:
  explicit AttentionScores(const Attention& op)
      : op_(op),
        seed_(op.drops() ? number(op.seed) : 0),  // checked only where it is used
        offset_(op.drops() ? number(op.offset) : 0),
        left_out_(static_cast<std::uint64_t>(op.rate * 0x1p32)) {
    if (op.scale.on_device == 0) {
      scale_ = static_cast<float>(std::bit_cast<double>(op.scale.value.words[0]));
    } else {
      with_type(op.scale.type, [&](auto type) {
        using T = decltype(type);
        scale_ = to_number<float>(*reinterpret_cast<const T*>(op.scale.value.words[0]));
      });
    }
  }

  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] float kept() const { return static_cast<float>(1 / (1 - op_.rate)); }

  /// How many steps of an image count.
  [[nodiscard]] std::int64_t rows(std::int64_t image) const {
    return length(op_.q_lengths, image, op_.rows());
  }
  [[nodiscard]] std::int64_t columns(std::int64_t image) const {
    return length(op_.k_lengths, image, op_.columns());
  }

  /// The columns that count for a row.
  [[nodiscard]] AttentionRange visible(std::int64_t image, std::int64_t row) const {
    AttentionRange seen{0, op_.columns()};
    if (op_.pads != 0) {
      seen.end = columns(image);
      if (row >= rows(image)) return {};
    }
    const std::int64_t end = columns(image) - rows(image);  // where the last diagonal begins
    if (op_.right.set != 0)
      seen.end = std::min(seen.end, row + op_.right.shift + (op_.right.from_end != 0 ? end : 0) + 1);
    if (op_.left.set != 0)
      seen.first = std::max(seen.first, row - op_.left.shift + (op_.left.from_end != 0 ? end : 0) + 1);
    if (seen.first >= seen.end) return {};
    return seen;
  }
  /// The columns that count for any of some rows.
  [[nodiscard]] AttentionRange visible(std::int64_t image, const AttentionRange& rows) const {
    AttentionRange all;
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      const AttentionRange seen = visible(image, row);
      if (seen.count() == 0) continue;
      all = all.count() == 0 ? seen
                             : AttentionRange{std::min(all.first, seen.first), std::max(all.end, seen.end)};
    }
    return all;
  }

  /// The products of Q and K become scores, which are negative infinity where they do not count. Rows are
  /// `distance` apart.
  void finish(std::int64_t image, std::int64_t head, const AttentionRange& rows,
              const AttentionRange& columns, float* scores, std::int64_t distance) const {
    AttentionRows bias(static_cast<std::size_t>(op_.bias.address != 0 ? columns.count() : 0));
    for (std::int64_t i = 0; i < rows.count(); ++i) {
      float* const row = scores + i * distance;
      const AttentionRange seen = visible(image, rows.first + i);
      if (!bias.empty()) read_bias(image, head, rows.first + i, columns, bias.data());
      for (std::int64_t j = 0; j < columns.count(); ++j) {
        const bool counts = columns.first + j >= seen.first && columns.first + j < seen.end;
        const float added = bias.empty() ? 0.0F : bias[static_cast<std::size_t>(j)];
        row[j] = counts ? row[j] * scale_ + added : -HUGE_VALF;
      }
    }
  }

  /// f(j, factor) for some columns of a row: 0 where the weight is left out.
  template <class F>
  void each_kept(std::int64_t image, std::int64_t head, std::int64_t row, const AttentionRange& columns,
                 F f) const {
    using Words = gpupool::operations::philox::Block;
    const auto first = static_cast<std::uint64_t>(
        ((image * op_.heads() + head) * op_.rows() + row) * op_.columns() + columns.first);
    Words words{};
    std::uint64_t made = ~std::uint64_t{0};
    for (std::int64_t j = 0; j < columns.count(); ++j) {
      const std::uint64_t index = first + static_cast<std::uint64_t>(j);
      if (index / 4 != made) {
        made = index / 4;
        words = gpupool::operations::philox::block(seed_, made, offset_);
      }
      f(j, words.words[index % 4] >= left_out_ ? kept() : 0.0F);
    }
  }

 private:
  static std::uint64_t number(const gpupool::operations::AttentionNumber& number) {
    if (number.on_device == 0) return number.value;
    return number.wide != 0 ? *reinterpret_cast<const std::uint64_t*>(number.value)
                            : *reinterpret_cast<const std::uint32_t*>(number.value);
  }
  static std::int64_t length(const gpupool::operations::AttentionLengths& lengths, std::int64_t image,
                             std::int64_t most) {
    if (lengths.address == 0) return most;
    const std::int64_t at = image * lengths.stride;
    const std::int64_t found = lengths.wide != 0 ? reinterpret_cast<const std::int64_t*>(lengths.address)[at]
                                                 : reinterpret_cast<const std::int32_t*>(lengths.address)[at];
    return std::clamp<std::int64_t>(found, 0, most);
  }
  void read_bias(std::int64_t image, std::int64_t head, std::int64_t row, const AttentionRange& columns,
                 float* into) const {
    const Tensor& bias = op_.bias;
    const auto step = [&](int axis) { return bias.sizes[axis] == 1 ? 0 : bias.strides[axis]; };
    read_row(bias, image * step(0) + head * step(1) + row * step(2) + columns.first * step(3), step(3),
             columns.count(), into);
  }

  const Attention& op_;
  std::uint64_t seed_, offset_, left_out_;
  float scale_ = 1;
};

}  // namespace softgpu::libraries
