// Attention: rows of the result, or of gradients, one part after the other in any order.
#include "libraries/operations/attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/attention/scores.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sums.h"

namespace softgpu::libraries {
namespace {

constexpr std::int64_t columns_at_a_time = 512, rows_at_a_time = 64;

template <class F>
void each_piece(const AttentionRange& range, std::int64_t at_a_time, F f) {
  for (std::int64_t first = range.first; first < range.end; first += at_a_time)
    f(AttentionRange{first, std::min(first + at_a_time, range.end)});
}

void check_attention(const Attention& op, const Memory& memory) {
  const auto check = [&](const Tensor& tensor, const char* what) { check_tensor(tensor, memory, what); };
  check(op.q, "the queries");
  check(op.k, "the keys");
  check(op.v, "the values");
  const auto check_made = [&](const Tensor& tensor, bool made, const char* what) {
    (made ? check_written : check_tensor)(tensor, memory, what);
  };
  check_made(op.o, op.backward == 0, "the result");
  if (op.statistics.address != 0) check_made(op.statistics, op.backward == 0, "the statistics");
  if (op.bias.address != 0) check(op.bias, "the bias");
  if (op.backward != 0) {
    check(op.o_gradient, "the gradient of the result");
    check_written(op.q_gradient, memory, "the gradient of the queries");
    check_written(op.k_gradient, memory, "the gradient of the keys");
    check_written(op.v_gradient, memory, "the gradient of the values");
    if (op.bias_gradient.address != 0) check_written(op.bias_gradient, memory, "the gradient of the bias");
  }
  for (const auto* const lengths : {&op.q_lengths, &op.k_lengths}) {
    if (lengths->address == 0) continue;
    std::int64_t last = 0;
    if (__builtin_mul_overflow(op.images() - 1, lengths->stride, &last))
      throw Failure(softgpu::Fault::illegal_address, "lengths of sequences: more than all memory");
    memory.check(lengths->address, static_cast<std::uint64_t>(last) + 1, lengths->wide != 0 ? 8 : 4,
                 "lengths of sequences");
  }
  if (op.scale.on_device != 0) {
    if (bytes_of(op.scale.type) == 0 || is_complex(op.scale.type))
      throw Failure(softgpu::Fault::illegal_instruction, "the scale: an unknown type");
    memory.check(op.scale.value.words[0], 1, bytes_of(op.scale.type), "the scale");
  }
  for (const auto* const number : {&op.seed, &op.offset}) {
    if (op.drops() && number->on_device != 0)
      memory.check(number->value, 1, number->wide != 0 ? 8 : 4, "the seed of what is left out");
  }
}

/// The rows of a part, counted by the images and heads of the tensor that it writes.
struct RowPart {
  std::int64_t image, head;
  AttentionRange steps;
};
RowPart part_of(const Tensor& tensor, std::uint64_t part, std::int64_t steps, std::int64_t at_a_time) {
  const std::int64_t pieces = (steps + at_a_time - 1) / at_a_time;
  const auto number = static_cast<std::int64_t>(part);
  const std::int64_t first = number % pieces * at_a_time, both = number / pieces;
  return {both / tensor.sizes[1], both % tensor.sizes[1], {first, std::min(first + at_a_time, steps)}};
}

void forward(const Attention& op, const AttentionScores& scores, const RowPart& part) {
  const std::int64_t count = part.steps.count(), image = part.image, head = part.head;
  const std::int64_t key_head = head / op.group();
  const AttentionRange seen = scores.visible(image, part.steps);
  const std::int64_t distance = std::max<std::int64_t>(seen.count(), 1);
  AttentionRows queries, others, weights(attention_size(count, distance)),
      result(attention_size(count, op.value_width())), statistics(static_cast<std::size_t>(count));
  read_steps(op.q, image, head, part.steps, queries);
  each_piece(seen, columns_at_a_time, [&](const AttentionRange& columns) {
    read_steps(op.k, image, key_head, columns, others);
    float* const into = weights.data() + (columns.first - seen.first);
    multiply_turned(count, columns.count(), op.width(), queries.data(), others.data(), into, distance);
    scores.finish(image, head, part.steps, columns, into, distance);
  });
  for (std::int64_t i = 0; i < count; ++i) {
    float* const row = weights.data() + i * distance;
    float most = -HUGE_VALF;
    for (std::int64_t j = 0; j < seen.count(); ++j) most = row[j] > most || row[j] != row[j] ? row[j] : most;
    float& statistic = statistics[static_cast<std::size_t>(i)];
    if (seen.count() == 0 || most == -HUGE_VALF) {  // nothing counts
      std::fill_n(row, seen.count(), 0.0F);
      statistic = -HUGE_VALF;
      continue;
    }
    for (std::int64_t j = 0; j < seen.count(); ++j) row[j] = std::exp(row[j] - most);
    const double sum = sum_of(row, seen.count(), [](double x) { return x; });
    statistic = most + static_cast<float>(std::log(sum));
    const auto factor = static_cast<float>(1 / sum);
    for (std::int64_t j = 0; j < seen.count(); ++j) row[j] *= factor;
    if (op.drops()) {
      scores.each_kept(image, head, part.steps.first + i, seen,
                       [&](std::int64_t j, float kept) { row[j] *= kept; });
    }
  }
  each_piece(seen, columns_at_a_time, [&](const AttentionRange& columns) {
    read_steps(op.v, image, key_head, columns, others);
    add_product(count, op.value_width(), columns.count(), weights.data() + (columns.first - seen.first),
                distance, others.data(), result.data());
  });
  write_steps(op.o, image, head, part.steps, result);
  if (op.statistics.address != 0) write_steps(op.statistics, image, head, part.steps, statistics);
}

/// Some rows of a head, with what gradients need of them.
struct GradientRows {
  std::int64_t image = 0, head = 0;
  AttentionRange steps;
  AttentionRows queries, gradients, statistics;
  AttentionRows sums;  // of each row: weights times their gradients

  void read(const Attention& op, std::int64_t of_image, std::int64_t of_head,
            const AttentionRange& of_steps) {
    image = of_image;
    head = of_head;
    steps = of_steps;
    AttentionRows results;
    read_steps(op.q, image, head, steps, queries);
    read_steps(op.o_gradient, image, head, steps, gradients);
    read_steps(op.statistics, image, head, steps, statistics);
    read_steps(op.o, image, head, steps, results);
    sums.assign(static_cast<std::size_t>(steps.count()), 0.0F);
    const std::int64_t width = op.value_width();
    for (std::int64_t i = 0; i < steps.count(); ++i) {
      double sum = 0;
      for (std::int64_t j = i * width; j < (i + 1) * width; ++j)
        sum += static_cast<double>(results[static_cast<std::size_t>(j)]) *
               static_cast<double>(gradients[static_cast<std::size_t>(j)]);
      sums[static_cast<std::size_t>(i)] = static_cast<float>(sum);
    }
  }
};

/// A block of weights, as V's gradient needs them, and the gradients of their scores.
class GradientBlock {
 public:
  GradientBlock(const Attention& op, const AttentionScores& scores) : op_(op), scores_(scores) {}

  /// Of columns whose keys and values these are.
  void compute(const GradientRows& rows, const AttentionRange& columns, const AttentionRows& keys,
               const AttentionRows& values) {
    const std::int64_t count = rows.steps.count(), wide = columns.count();
    weights.resize(attention_size(count, wide));
    of_scores.resize(attention_size(count, wide));
    multiply_turned(count, wide, op_.width(), rows.queries.data(), keys.data(), weights.data(), wide);
    scores_.finish(rows.image, rows.head, rows.steps, columns, weights.data(), wide);
    multiply_turned(count, wide, op_.value_width(), rows.gradients.data(), values.data(), of_scores.data(),
                    wide);
    for (std::int64_t i = 0; i < count; ++i) {
      float *const row = weights.data() + i * wide, *const gradient = of_scores.data() + i * wide;
      const float statistic = rows.statistics[static_cast<std::size_t>(i)],
                  sum = rows.sums[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < wide; ++j)
        row[j] = row[j] == -HUGE_VALF ? 0.0F : std::exp(row[j] - statistic);
      if (op_.drops()) {
        scores_.each_kept(rows.image, rows.head, rows.steps.first + i, columns,
                          [&](std::int64_t j, float kept) {
                            gradient[j] = row[j] * (gradient[j] * kept - sum);
                            row[j] *= kept;
                          });
      } else {
        for (std::int64_t j = 0; j < wide; ++j) gradient[j] = row[j] * (gradient[j] - sum);
      }
    }
  }

  AttentionRows weights, of_scores;

 private:
  const Attention& op_;
  const AttentionScores& scores_;
};

void scale_rows(AttentionRows& rows, float factor) {
  for (float& value : rows) value *= factor;
}

void queries_backward(const Attention& op, const AttentionScores& scores, const RowPart& part) {
  GradientRows rows;
  rows.read(op, part.image, part.head, part.steps);
  GradientBlock block(op, scores);
  AttentionRows keys, values, result(attention_size(part.steps.count(), op.width()));
  each_piece(scores.visible(part.image, part.steps), columns_at_a_time, [&](const AttentionRange& columns) {
    read_steps(op.k, part.image, part.head / op.group(), columns, keys);
    read_steps(op.v, part.image, part.head / op.group(), columns, values);
    block.compute(rows, columns, keys, values);
    add_product(part.steps.count(), op.width(), columns.count(), block.of_scores.data(), columns.count(),
                keys.data(), result.data());
  });
  scale_rows(result, scores.scale());
  write_steps(op.q_gradient, part.image, part.head, part.steps, result);
}

/// `part` has steps of K and V.
void keys_backward(const Attention& op, const AttentionScores& scores, const RowPart& part) {
  const std::int64_t count = part.steps.count();
  AttentionRows keys, values, of_keys(attention_size(count, op.width())),
      of_values(attention_size(count, op.value_width()));
  read_steps(op.k, part.image, part.head, part.steps, keys);
  read_steps(op.v, part.image, part.head, part.steps, values);
  GradientRows rows;
  GradientBlock block(op, scores);
  for (std::int64_t head = part.head * op.group(); head < (part.head + 1) * op.group(); ++head) {
    each_piece({0, op.rows()}, rows_at_a_time, [&](const AttentionRange& steps) {
      const AttentionRange seen = scores.visible(part.image, steps);
      if (seen.end <= part.steps.first || seen.first >= part.steps.end) return;
      rows.read(op, part.image, head, steps);
      block.compute(rows, part.steps, keys, values);
      add_turned_product(count, op.value_width(), steps.count(), block.weights.data(), rows.gradients.data(),
                         of_values.data());
      add_turned_product(count, op.width(), steps.count(), block.of_scores.data(), rows.queries.data(),
                         of_keys.data());
    });
  }
  scale_rows(of_keys, scores.scale());
  write_steps(op.k_gradient, part.image, part.head, part.steps, of_keys);
  write_steps(op.v_gradient, part.image, part.head, part.steps, of_values);
}

/// `part` has an image and a head of the bias: those that it is repeated for are added up.
void bias_backward(const Attention& op, const AttentionScores& scores, const RowPart& part) {
  const auto those_of = [](std::int64_t size, std::int64_t whole, std::int64_t one) {
    return size == whole ? AttentionRange{one, one + 1} : AttentionRange{0, whole};
  };
  const AttentionRange images = those_of(op.bias_gradient.sizes[0], op.images(), part.image),
                       heads = those_of(op.bias_gradient.sizes[1], op.heads(), part.head);
  AttentionRows keys, values, result(attention_size(part.steps.count(), op.columns()));
  GradientRows rows;
  GradientBlock block(op, scores);
  for (std::int64_t image = images.first; image < images.end; ++image) {
    for (std::int64_t head = heads.first; head < heads.end; ++head) {
      rows.read(op, image, head, part.steps);
      each_piece(scores.visible(image, part.steps), columns_at_a_time, [&](const AttentionRange& columns) {
        read_steps(op.k, image, head / op.group(), columns, keys);
        read_steps(op.v, image, head / op.group(), columns, values);
        block.compute(rows, columns, keys, values);
        for (std::int64_t i = 0; i < part.steps.count(); ++i) {
          for (std::int64_t j = 0; j < columns.count(); ++j)
            result[attention_size(i, op.columns()) + static_cast<std::size_t>(columns.first + j)] +=
                block.of_scores[attention_size(i, columns.count()) + static_cast<std::size_t>(j)];
        }
      });
    }
  }
  write_steps(op.bias_gradient, part.image, part.head, part.steps, result);
}

}  // namespace

void run(const Attention& op, const Parts& parts, const Memory& memory) {
  check_attention(op, memory);
  const AttentionScores scores(op);
  parts.each(op.parts(), [&](std::uint64_t part) {
    const auto rows_of = [&](const Tensor& tensor) {
      return part_of(tensor, part, op.rows(), op.rows_of_a_part());
    };
    if (op.backward == 0) return forward(op, scores, rows_of(op.q));
    if (part < op.row_parts(op.q)) return queries_backward(op, scores, rows_of(op.q));
    part -= op.row_parts(op.q);
    if (part < op.column_parts())
      return keys_backward(op, scores, part_of(op.k, part, op.columns(), op.columns_of_a_part()));
    part -= op.column_parts();
    bias_backward(op, scores, rows_of(op.bias_gradient));
  });
}

}  // namespace softgpu::libraries
