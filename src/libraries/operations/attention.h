// Scaled dot product attention: softmax(scale · Q · Kᵀ + bias) · V without what is masked, and its gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/scalar.h"
#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// How long the sequence of each image is: 32-bit numbers, or 64-bit ones where `wide`. Address 0: all of it.
struct AttentionLengths {
  std::uint64_t address = 0;
  std::int64_t stride = 0;
  Flag wide = false;
  std::uint8_t reserved[7] = {};
};

/// Where a row of the scores begins or ends: `shift` columns from the diagonal, which runs through the first
/// elements of both sequences, or (`from_end`) through their last ones.
struct AttentionBound {
  std::int64_t shift = 0;
  Flag set = false;
  Flag from_end = false;
  std::uint8_t reserved[6] = {};
};

/// A number of 64 bits, or (`on_device`) its address there, of 32 bits unless `wide`.
struct AttentionNumber {
  std::uint64_t value = 0;
  Flag on_device = false;
  Flag wide = true;
  std::uint8_t reserved[6] = {};
};

/// Tensors are images × heads × steps × numbers. A head of K and V serves as many heads of Q as there are
/// more of them. `statistics` has the logarithm of each row's sum of exponentials: forward it is made
/// (address 0: not wanted), backward it is needed.
struct Attention {
  static constexpr const char* name = "cudnn_attention";
  static constexpr std::int64_t most_steps = std::int64_t{1} << 24, most_width = 4096;

  Tensor q, k, v, o, statistics;
  Tensor bias;  // address 0: none. A size of 1 is repeated
  Tensor o_gradient, q_gradient, k_gradient, v_gradient, bias_gradient;
  AttentionLengths q_lengths, k_lengths;
  Factor scale;  // a double, or the address of a number of its type
  // Column j of row i counts where i - left + 1 <= j <= i + right.
  AttentionBound left, right;
  // Weights are left out at random: in both directions by the same numbers of Philox.
  AttentionNumber seed, offset;
  double rate = 0;
  Flag backward = false;
  Flag pads = false;  // steps behind a sequence's end do not count
  std::uint8_t reserved[6] = {};

  [[nodiscard]] std::int64_t images() const { return q.sizes[0]; }
  [[nodiscard]] std::int64_t heads() const { return q.sizes[1]; }
  [[nodiscard]] std::int64_t key_heads() const { return k.sizes[1]; }
  [[nodiscard]] std::int64_t group() const { return heads() / key_heads(); }
  [[nodiscard]] std::int64_t rows() const { return q.sizes[2]; }
  [[nodiscard]] std::int64_t columns() const { return k.sizes[2]; }
  [[nodiscard]] std::int64_t width() const { return q.sizes[3]; }
  [[nodiscard]] std::int64_t value_width() const { return v.sizes[3]; }
  [[nodiscard]] bool drops() const { return rate > 0; }

  /// Whether the tensor has this shape, and a type that attention is computed in.
  static bool has_shape(const Tensor& tensor, std::int64_t images, std::int64_t heads, std::int64_t steps,
                        std::int64_t width) {
    return tensor.sound() && tensor.dims == 4 && tensor.sizes[0] == images && tensor.sizes[1] == heads &&
           tensor.sizes[2] == steps && tensor.sizes[3] == width &&
           (tensor.type == Element::f16 || tensor.type == Element::bf16 || tensor.type == Element::f32);
  }
  /// Whether the bias, or its gradient, is one of these scores.
  [[nodiscard]] bool fits_scores(const Tensor& tensor) const {
    const std::int64_t whole[] = {images(), heads(), rows(), columns()};
    for (int i = 0; i < 4; ++i) {
      if (tensor.sizes[i] != 1 && tensor.sizes[i] != whole[i]) return false;
    }
    return has_shape(tensor, tensor.sizes[0], tensor.sizes[1], tensor.sizes[2], tensor.sizes[3]);
  }
  [[nodiscard]] bool sound() const {
    for (const Tensor* const tensor : {&q, &k, &v}) {
      if (!has_shape(*tensor, tensor->sizes[0], tensor->sizes[1], tensor->sizes[2], tensor->sizes[3]) ||
          tensor->sizes[2] > most_steps || tensor->sizes[3] > most_width)
        return false;
    }
    if (heads() % key_heads() != 0 || !has_shape(k, images(), key_heads(), columns(), width()) ||
        !has_shape(v, images(), key_heads(), columns(), value_width()) ||
        !has_shape(o, images(), heads(), rows(), value_width()))
      return false;
    if (statistics.address != 0 && !has_shape(statistics, images(), heads(), rows(), 1)) return false;
    if (bias.address != 0 && !fits_scores(bias)) return false;
    for (const AttentionLengths* const lengths : {&q_lengths, &k_lengths}) {
      if (lengths->stride < 0 || lengths->stride > max_size) return false;
    }
    for (const AttentionBound* const bound : {&left, &right}) {
      if (bound->shift > max_size || bound->shift < -max_size) return false;
    }
    return rate >= 0 && rate < 1 && (!backward || sound_backward());
  }
  [[nodiscard]] bool sound_backward() const {
    return statistics.address != 0 && has_shape(o_gradient, images(), heads(), rows(), value_width()) &&
           has_shape(q_gradient, images(), heads(), rows(), width()) &&
           has_shape(k_gradient, images(), key_heads(), columns(), width()) &&
           has_shape(v_gradient, images(), key_heads(), columns(), value_width()) &&
           (bias_gradient.address == 0 || (fits_scores(bias_gradient) && bias_gradient.sizes[2] == rows() &&
                                           bias_gradient.sizes[3] == columns()));
  }

  // A part has some rows of one head, or (for the gradients of K and V) some columns of one of K's heads.
  /// Rows that together with `others` columns are some milliseconds' work.
  [[nodiscard]] std::int64_t together(std::int64_t others) const {
    constexpr std::int64_t products_of_a_part = std::int64_t{1} << 24, most = 64;
    return std::clamp<std::int64_t>(products_of_a_part / others / (width() + value_width()), 1, most);
  }
  [[nodiscard]] std::int64_t rows_of_a_part() const { return together(columns()); }
  [[nodiscard]] std::int64_t columns_of_a_part() const {
    return together(std::min(rows() * group(), max_size));
  }
  [[nodiscard]] std::uint64_t row_parts(const Tensor& tensor) const {
    return parts_of({tensor.sizes[0], tensor.sizes[1], (rows() + rows_of_a_part() - 1) / rows_of_a_part()});
  }
  [[nodiscard]] std::uint64_t column_parts() const {
    return parts_of({images(), key_heads(), (columns() + columns_of_a_part() - 1) / columns_of_a_part()});
  }
  [[nodiscard]] std::uint64_t bias_parts() const {
    return bias_gradient.address == 0 ? 0 : row_parts(bias_gradient);
  }
  [[nodiscard]] std::uint64_t parts() const {
    if (!backward) return row_parts(q);
    constexpr auto most = std::uint64_t{1} << 60;  // none of them is more, so that their sum is one number
    return std::min(row_parts(q), most) + std::min(column_parts(), most) + std::min(bias_parts(), most);
  }
};

}  // namespace gpupool::operations
