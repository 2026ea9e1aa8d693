// Gradients of a recurrent network's weights: of some rows of one of its matrices, summed over all steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/recurrent/rnn_operands.h"

namespace softgpu::libraries {

template <class N>
class WeightsGradient {
 public:
  explicit WeightsGradient(const RnnOperands<N>& of) : of_(of) {}

  /// Blocks of rows of the gates' matrices, of the input and of the state, then those of a projection.
  void block(const Network& net, std::int64_t number) {
    const std::int64_t of_gates = of_.op.gate_blocks();
    if (number < of_gates) {
      for (const bool recurrent : {false, true}) gates(net, recurrent, rows_of(number, of_.shape.rows()));
    } else {
      projection(net, rows_of(number - of_gates, of_.shape.projection));
    }
  }

 private:
  using Numbers = std::vector<N>;
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  struct Rows {
    std::int64_t first, count;
  };
  static Rows rows_of(std::int64_t block, std::int64_t all) {
    const std::int64_t first = block * Rnn::rows_of_a_part;
    return {first, std::min(Rnn::rows_of_a_part, all - first)};
  }

  void gates(const Network& net, bool recurrent, const Rows& rows) {
    const auto& shape = of_.shape;
    const std::int64_t columns = of_.columns(net, recurrent), hidden = shape.hidden;
    sum(net, columns, rows.count, [&](const RnnRow& row, N* values, N* gradients) {
      recurrent ? of_.read_before(net, row, values) : of_.read_input(net, row, values);
      const N* const slots = of_.kept.gates(net.layer, row.step, row.sequence, net.direction);
      for (std::int64_t n = 0; n < rows.count; ++n) {
        const std::int64_t gate = (rows.first + n) / hidden, j = (rows.first + n) % hidden;
        gradients[n] = slots[of_.slot_of(gate, recurrent) * hidden + j];
      }
    });
    add(shape.matrix(net.layer, net.direction, recurrent) + rows.first * columns, sums_);
    if (shape.has_bias(recurrent))
      add(shape.bias_of(net.layer, net.direction, recurrent) + rows.first, biases_);
  }

  void projection(const Network& net, const Rows& rows) {
    const auto& shape = of_.shape;
    sum(net, shape.hidden, rows.count, [&](const RnnRow& row, N* values, N* gradients) {
      std::copy_n(of_.kept.projected(net.layer, row.step, row.sequence, net.direction), shape.hidden, values);
      std::copy_n(of_.kept.made_gradient(net.layer, row.step, row.sequence, net.direction) + rows.first,
                  rows.count, gradients);
    });
    add(shape.projection_of(net.layer, net.direction) + rows.first * shape.hidden, sums_);
  }

  /// `read`: gives a step's `columns` values that the matrix was multiplied with, and the gradients of what
  /// `count` of its rows made of them.
  template <class Read>
  void sum(const Network& net, std::int64_t columns, std::int64_t count, const Read& read) {
    sums_.assign(size(count * columns), N(0));
    biases_.assign(size(count), N(0));
    for (std::int64_t number = 0; number < of_.shape.steps; ++number) {
      of_.find_rows(net, number, 0, of_.shape.batch, rows_);
      const auto terms = static_cast<std::int64_t>(rows_.size());
      if (terms == 0) break;
      values_.resize(size(terms * columns));
      gradients_.resize(size(terms * count));
      for (std::int64_t i = 0; i < terms; ++i) {
        N* const gradients = gradients_.data() + i * count;
        read(rows_[size(i)], values_.data() + i * columns, gradients);
        for (std::int64_t n = 0; n < count; ++n) biases_[size(n)] += gradients[n];
      }
      gemm(Trans::none, Trans::transpose, columns, count, terms, N(1), values_.data(), columns,
           gradients_.data(), count, N(1), sums_.data(), columns);
    }
  }

  void add(std::int64_t at, Numbers& values) {
    const Rnn& op = of_.op;
    const auto count = static_cast<std::int64_t>(values.size());
    if (op.adds != 0) {
      before_.resize(values.size());
      read_numbers(op, op.weights_gradient, at, count, before_.data());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += before_[i];
    }
    write_numbers(op, op.weights_gradient, at, count, values.data());
  }

  const RnnOperands<N>& of_;
  std::vector<RnnRow> rows_;
  Numbers sums_, biases_, values_, gradients_, before_;
};

}  // namespace softgpu::libraries
