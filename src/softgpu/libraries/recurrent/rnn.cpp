// Recurrent networks. A part of all passes but one is one step of some sequences through one layer in one
// direction: its block has done the steps before. The gradients of weights are cut by rows of matrices.
#include "libraries/operations/rnn.h"

#include <algorithm>
#include <vector>

#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/dropout_states.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/recurrent/cells.h"
#include "softgpu/libraries/recurrent/rnn_memory.h"
#include "softgpu/libraries/recurrent/rnn_operands.h"
#include "softgpu/libraries/recurrent/weights_gradient.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::RnnShape;

template <class N>
class Recurrence {
 public:
  Recurrence(const RnnOperands<N>& of, DropoutSource& source)
      : of_(of), op_(of.op), shape_(of.shape), kept_(of.kept), source_(source) {}

  void forward(std::int64_t round, std::int64_t first, std::int64_t end);
  void backward(std::int64_t round, std::int64_t first, std::int64_t end);

 private:
  using Numbers = std::vector<N>;
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  [[nodiscard]] Network network_of(std::int64_t round) const {
    const std::int64_t both = round / shape_.steps;
    return {both / shape_.directions, both % shape_.directions};
  }
  [[nodiscard]] bool is_last(const Network& net) const { return net.layer == shape_.layers - 1; }
  [[nodiscard]] bool is_lstm() const { return shape_.cell == Cell::lstm; }
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Of a sequence that has any.
  [[nodiscard]] std::int64_t last_step(const Network& net, std::int64_t sequence) const {
    return net.direction != 0 ? 0 : op_.length(sequence) - 1;
  }

  /// A matrix of gates × columns, as it lies or copied.
  const N* matrix(const Network& net, bool recurrent) {
    return of_.weights(shape_.matrix(net.layer, net.direction, recurrent),
                       shape_.rows() * of_.columns(net, recurrent), matrix_);
  }
  /// What the gates of all rows get of `values`, which are rows × columns.
  void to_gates(const Network& net, bool recurrent, const Numbers& values, Numbers& gates) {
    const std::int64_t columns = of_.columns(net, recurrent);
    gates.assign(size(count() * shape_.rows()), N(0));
    if (shape_.has_bias(recurrent)) {
      const std::int64_t at = shape_.bias_of(net.layer, net.direction, recurrent);
      read_numbers(op_, op_.weights, at, shape_.rows(), gates.data());
      for (std::int64_t row = 1; row < count(); ++row)
        std::copy_n(gates.data(), shape_.rows(), gates.data() + row * shape_.rows());
    }
    gemm(Trans::transpose, Trans::none, shape_.rows(), count(), columns, N(1), matrix(net, recurrent),
         columns, values.data(), columns, N(1), gates.data(), shape_.rows());
  }
  /// Adds what `gates`, gradients of the gates, say of what they were computed of.
  void from_gates(const Network& net, bool recurrent, const Numbers& gates, N* values) {
    const std::int64_t columns = of_.columns(net, recurrent);
    gemm(Trans::none, Trans::none, columns, count(), shape_.rows(), N(1), matrix(net, recurrent), columns,
         gates.data(), shape_.rows(), N(1), values, columns);
  }

  const N* projection(const Network& net) {
    return of_.weights(shape_.projection_of(net.layer, net.direction), shape_.projection * shape_.hidden,
                       matrix_);
  }
  /// h of all rows, of what their cells made.
  void project(const Network& net) {
    const std::int64_t hidden = shape_.hidden, state = shape_.projection;
    state_.assign(size(count() * state), N(0));
    gemm(Trans::transpose, Trans::none, state, count(), hidden, N(1), projection(net), hidden, made_.data(),
         hidden, N(1), state_.data(), state);
    for (std::int64_t i = 0; i < count(); ++i) {
      const RnnRow& row = rows_[size(i)];
      std::copy_n(state_.data() + i * state, state, result(net, row));
      if (op_.pass == RnnPass::training)
        std::copy_n(made_.data() + i * hidden, hidden,
                    kept_.projected(net.layer, row.step, row.sequence, net.direction));
    }
  }
  /// From the gradients of h of all rows to those of what their cells made. The gradient of the matrix needs
  /// the former.
  void unproject(const Network& net) {
    const std::int64_t hidden = shape_.hidden, state = shape_.projection;
    for (std::int64_t i = 0; i < count(); ++i) {
      const RnnRow& row = rows_[size(i)];
      std::copy_n(dh_.data() + i * state, state,
                  kept_.made_gradient(net.layer, row.step, row.sequence, net.direction));
    }
    made_.assign(size(count() * hidden), N(0));
    gemm(Trans::none, Trans::none, hidden, count(), state, N(1), projection(net), hidden, dh_.data(), state,
         N(1), made_.data(), hidden);
    std::fill(dh_.begin(), dh_.end(), N(0));
  }

  [[nodiscard]] N* result(const Network& net, const RnnRow& row) const {
    return kept_.results(net.layer, row.step, row.sequence) + net.direction * shape_.state();
  }
  void store(const Network& net, const RnnRow& row);
  void fill(const gpupool::operations::Sequences& of, std::uint64_t address, const RnnPlaces& places,
            std::int64_t number, std::int64_t first, std::int64_t end, std::int64_t width) const;
  void read_result_gradient(const Network& net, const RnnRow& row, bool is_last_step, N* dh);
  void store_input_gradient(const Network& net, const RnnRow& row, N* gradient);

  const RnnOperands<N>& of_;
  const Rnn& op_;
  const RnnShape& shape_;
  const RnnKept<N>& kept_;
  DropoutSource& source_;
  std::vector<RnnRow> rows_;
  Numbers input_, before_, by_input_, by_state_, cells_, matrix_, state_, made_, dh_;
};

/// Steps behind the end of a sequence, where they have a place and a value for it was given.
template <class N>
void Recurrence<N>::fill(const gpupool::operations::Sequences& of, std::uint64_t address,
                         const RnnPlaces& places, std::int64_t number, std::int64_t first, std::int64_t end,
                         std::int64_t width) const {
  if (of.fills == 0 || !places.has_ends()) return;
  const Numbers values(size(width), static_cast<N>(of.fill));
  for (std::int64_t sequence = first; sequence < end; ++sequence) {
    if (number >= op_.length(sequence))
      write_numbers(op_, address, places.at(number, sequence) * width, width, values.data());
  }
}

/// What becomes of a step's result: the next layer's input, perhaps with something left out, or the
/// program's.
template <class N>
void Recurrence<N>::store(const Network& net, const RnnRow& row) {
  const std::int64_t state = shape_.state(), at = net.direction * state;
  if (is_last(net)) {
    write_numbers(op_, op_.y.address, of_.y.at(row.step, row.sequence) * shape_.width() + at, state,
                  result(net, row));
  } else if (of_.drops()) {
    std::uint8_t* const mask = kept_.mask(net.layer, row.step, row.sequence) + at;
    const std::int64_t index =
        ((net.layer * shape_.steps + row.step) * shape_.batch + row.sequence) * shape_.width() + at;
    for (std::int64_t j = 0; j < state; ++j)
      mask[j] = source_.keeps(static_cast<std::uint64_t>(index + j)) ? 1 : 0;
  }
}

template <class N>
void Recurrence<N>::forward(std::int64_t round, std::int64_t first, std::int64_t end) {
  const Network net = network_of(round);
  const std::int64_t number = round % shape_.steps, hidden = shape_.hidden, state = shape_.state(),
                     columns = shape_.input_of(net.layer);
  of_.find_rows(net, number, first, end, rows_);
  input_.resize(size(count() * columns));
  before_.resize(size(count() * state));
  cells_.resize(size(hidden));
  for (std::int64_t i = 0; i < count(); ++i) {
    of_.read_input(net, rows_[size(i)], input_.data() + i * columns);
    of_.read_before(net, rows_[size(i)], before_.data() + i * state);
  }
  if (count() > 0) {
    to_gates(net, false, input_, by_input_);
    to_gates(net, true, before_, by_state_);
  }
  if (shape_.projects()) made_.resize(size(count() * hidden));
  for (std::int64_t i = 0; i < count(); ++i) {
    const RnnRow& row = rows_[size(i)];
    N* const h = shape_.projects() ? made_.data() + i * hidden : result(net, row);
    N* const c = is_lstm() ? kept_.cells(net.layer, row.step, row.sequence, net.direction) : nullptr;
    if (is_lstm()) of_.read_cells_before(net, row, cells_.data());
    N* const slots = op_.pass == RnnPass::training
                         ? kept_.gates(net.layer, row.step, row.sequence, net.direction)
                         : nullptr;
    cell_step<N>(shape_.cell, hidden,
                 {by_input_.data() + i * shape_.rows(), by_state_.data() + i * shape_.rows(),
                  before_.data() + i * state, cells_.data(), h, c, slots});
  }
  if (shape_.projects() && count() > 0) project(net);
  for (const RnnRow& row : rows_) store(net, row);
  if (is_last(net) && net.direction == 0)
    fill(op_.y, op_.y.address, of_.y, number, first, end, shape_.width());
  if (number != shape_.steps - 1) return;
  for (std::int64_t sequence = first; sequence < end; ++sequence) {
    if (op_.length(sequence) == 0) {
      of_.copy_state(op_.h.first, op_.h.last, net, sequence, state);
      if (is_lstm()) of_.copy_state(op_.c.first, op_.c.last, net, sequence, hidden);
      continue;
    }
    const RnnRow last{sequence, last_step(net, sequence), 0};
    of_.write_state(op_.h.last, net, sequence, state, result(net, last));
    if (is_lstm())
      of_.write_state(op_.c.last, net, sequence, hidden,
                      kept_.cells(net.layer, last.step, sequence, net.direction));
  }
}

/// The second direction of a layer is differentiated first; the other one adds to what it left.
template <class N>
void Recurrence<N>::store_input_gradient(const Network& net, const RnnRow& row, N* gradient) {
  const std::int64_t columns = shape_.input_of(net.layer);
  if (net.layer > 0 && of_.drops()) of_.drop(net.layer - 1, row, gradient);
  N* const sum = kept_.input_gradient(net.layer, row.step, row.sequence, columns);
  if (net.direction != shape_.directions - 1) {
    for (std::int64_t j = 0; j < columns; ++j) gradient[j] += sum[j];
  }
  std::copy_n(gradient, columns, sum);
  if (net.layer == 0 && net.direction == 0 && op_.x.gradient != 0)
    write_numbers(op_, op_.x.gradient, of_.x.at(row.step, row.sequence) * columns, columns, gradient);
}

/// The whole gradient of a step's h: by what is above it, and by the step behind it.
template <class N>
void Recurrence<N>::read_result_gradient(const Network& net, const RnnRow& row, bool is_last_step, N* dh) {
  const std::int64_t state = shape_.state(), at = net.direction * state;
  N* const next = kept_.carried(0, row.sequence);
  if (is_last_step) of_.read_state(op_.h.last_gradient, net, row.sequence, state, next);
  if (is_last(net)) {
    read_numbers(op_, op_.y.gradient, of_.y.at(row.step, row.sequence) * shape_.width() + at, state, dh);
  } else {
    std::copy_n(kept_.input_gradient(net.layer + 1, row.step, row.sequence, shape_.width()) + at, state, dh);
  }
  for (std::int64_t j = 0; j < state; ++j) dh[j] += next[j];
}

template <class N>
void Recurrence<N>::backward(std::int64_t round, std::int64_t first, std::int64_t end) {
  const Network net = network_of(round);
  const std::int64_t number = round % shape_.steps, hidden = shape_.hidden, state = shape_.state(),
                     rows = shape_.rows(), columns = shape_.input_of(net.layer);
  of_.find_rows(net, number, first, end, rows_);
  dh_.resize(size(count() * state));
  by_input_.resize(size(count() * rows));
  by_state_.resize(size(count() * rows));
  before_.resize(size(state));
  cells_.resize(size(hidden));
  for (std::int64_t i = 0; i < count(); ++i) {
    const RnnRow& row = rows_[size(i)];
    const bool is_last_step = number == op_.length(row.sequence) - 1;
    read_result_gradient(net, row, is_last_step, dh_.data() + i * state);
    if (is_last_step)
      of_.read_state(op_.c.last_gradient, net, row.sequence, hidden, kept_.carried(1, row.sequence));
  }
  if (shape_.projects() && count() > 0) unproject(net);
  N* const made_gradient = shape_.projects() ? made_.data() : dh_.data();
  for (std::int64_t i = 0; i < count(); ++i) {
    const RnnRow& row = rows_[size(i)];
    of_.read_before(net, row, before_.data());
    if (is_lstm()) of_.read_cells_before(net, row, cells_.data());
    const N* const c = is_lstm() ? kept_.cells(net.layer, row.step, row.sequence, net.direction) : nullptr;
    N* const slots = kept_.gates(net.layer, row.step, row.sequence, net.direction);
    cell_gradient<N>(shape_.cell, hidden,
                     {before_.data(), cells_.data(), result(net, row), c, made_gradient + i * hidden,
                      kept_.carried(1, row.sequence), slots});
    for (std::int64_t gate = 0; gate < shape_.gates(); ++gate) {
      std::copy_n(slots + of_.slot_of(gate, false) * hidden, hidden,
                  by_input_.data() + i * rows + gate * hidden);
      std::copy_n(slots + of_.slot_of(gate, true) * hidden, hidden,
                  by_state_.data() + i * rows + gate * hidden);
    }
  }
  if (count() > 0) {
    from_gates(net, true, by_state_, dh_.data());
    input_.assign(size(count() * columns), N(0));
    from_gates(net, false, by_input_, input_.data());
  }
  for (std::int64_t i = 0; i < count(); ++i) {
    const RnnRow& row = rows_[size(i)];
    std::copy_n(dh_.data() + i * state, state, kept_.carried(0, row.sequence));
    store_input_gradient(net, row, input_.data() + i * columns);
  }
  if (net.layer == 0 && net.direction == 0 && op_.x.gradient != 0)
    fill(op_.x, op_.x.gradient, of_.x, number, first, end, shape_.input);
  if (number != 0) return;
  for (std::int64_t sequence = first; sequence < end; ++sequence) {
    if (op_.length(sequence) == 0) {
      of_.copy_state(op_.h.last_gradient, op_.h.first_gradient, net, sequence, state);
      if (is_lstm()) of_.copy_state(op_.c.last_gradient, op_.c.first_gradient, net, sequence, hidden);
      continue;
    }
    of_.write_state(op_.h.first_gradient, net, sequence, state, kept_.carried(0, sequence));
    if (is_lstm()) of_.write_state(op_.c.first_gradient, net, sequence, hidden, kept_.carried(1, sequence));
  }
}

template <class N>
void recur(const Rnn& op, const Parts& parts, const RnnPlaces& x, const RnnPlaces& y, DropoutSource& source) {
  const RnnOperands<N> operands(op, x, y);
  Recurrence<N> recurrence(operands, source);
  WeightsGradient<N> gradient(operands);
  parts.each(op.parts(), [&](std::uint64_t part) {
    const auto number = static_cast<std::int64_t>(part);
    if (op.pass == RnnPass::backward_weights) {
      const std::int64_t both = number / op.row_blocks();
      gradient.block({both / op.shape.directions, both % op.shape.directions}, number % op.row_blocks());
      return;
    }
    const auto blocks = static_cast<std::int64_t>(op.blocks());
    const std::int64_t first = number % blocks * op.sequences(),
                       end = std::min(first + op.sequences(), op.shape.batch), round = number / blocks;
    if (op.pass == RnnPass::backward_data) {
      recurrence.backward(op.rounds() - 1 - round, first, end);
    } else {
      recurrence.forward(round, first, end);
      source.end_part(op.parts(), static_cast<std::uint64_t>((op.shape.layers - 1) * op.shape.results()));
    }
  });
}

}  // namespace

void run(const Rnn& op, const Parts& parts, const Memory& memory) {
  const RnnPlaces x(op, op.x.layout), y(op, op.y.layout);
  check_rnn(op, x, y, memory);
  const bool draws = op.pass == RnnPass::training && op.shape.drops != 0;
  DropoutSource source(draws ? op.states : 0, op.rate, memory);
  if (op.shape.type == Element::f64) {
    recur<double>(op, parts, x, y, source);
  } else {
    recur<float>(op, parts, x, y, source);
  }
}

}  // namespace softgpu::libraries
