// Recurrent networks. A part of all passes but one is one step of some sequences through one layer in one
// direction: its block has done the steps before. The gradients of weights are cut by rows of matrices.
#include "libraries/operations/rnn.h"

#include <algorithm>
#include <vector>

#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/dropout_states.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/recurrent/cells.h"
#include "softgpu/libraries/recurrent/rnn_memory.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::RnnShape;
using gpupool::operations::RnnState;

template <class N>
constexpr Element type_of = std::is_same_v<N, float> ? Element::f32 : Element::f64;

/// One layer in one direction.
struct Network {
  std::int64_t layer, direction;
};

template <class N>
class Recurrence {
 public:
  Recurrence(const Rnn& op, const RnnPlaces& x, const RnnPlaces& y, DropoutSource& source)
      : op_(op), shape_(op.shape), x_(x), y_(y), source_(source), kept_(op) {}

  void forward(std::int64_t round, std::int64_t first, std::int64_t end);
  void backward(std::int64_t round, std::int64_t first, std::int64_t end);
  void weights(const Network& net, std::int64_t first_row, std::int64_t end_row);

 private:
  using Numbers = std::vector<N>;
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  [[nodiscard]] Network network_of(std::int64_t round) const {
    const std::int64_t both = round / shape_.steps;
    return {both / shape_.directions, both % shape_.directions};
  }
  [[nodiscard]] bool is_last(const Network& net) const { return net.layer == shape_.layers - 1; }

  /// The sequences of [first, end) that have a step of this number in the direction.
  void find_rows(const Network& net, std::int64_t number, std::int64_t first, std::int64_t end) {
    rows_.clear();
    for (std::int64_t sequence = first; sequence < end; ++sequence) {
      const std::int64_t length = op_.length(sequence);
      if (number >= length) continue;
      const bool turned = net.direction != 0;
      const std::int64_t step = turned ? length - 1 - number : number;
      rows_.push_back({sequence, step, number == 0 ? -1 : turned ? step + 1 : step - 1});
    }
  }
  /// Of a sequence that has any.
  [[nodiscard]] std::int64_t last_step(const Network& net, std::int64_t sequence) const {
    return net.direction != 0 ? 0 : op_.length(sequence) - 1;
  }

  /// A state of one sequence in the program's memory.
  [[nodiscard]] std::int64_t state_at(const Network& net, std::int64_t sequence) const {
    return ((net.layer * shape_.directions + net.direction) * shape_.batch + sequence) * shape_.hidden;
  }
  void read_state(std::uint64_t address, const Network& net, std::int64_t sequence, N* into) const {
    if (address == 0) {
      std::fill_n(into, shape_.hidden, N(0));
    } else {
      read_numbers(op_, address, state_at(net, sequence), shape_.hidden, into);
    }
  }
  void write_state(std::uint64_t address, const Network& net, std::int64_t sequence, const N* from) const {
    if (address != 0) write_numbers(op_, address, state_at(net, sequence), shape_.hidden, from);
  }
  /// A state that the sequence never changed.
  void copy_state(std::uint64_t from, std::uint64_t into, const Network& net, std::int64_t sequence) {
    state_.resize(size(shape_.hidden));
    read_state(from, net, sequence, state_.data());
    write_state(into, net, sequence, state_.data());
  }

  /// Values that something is left out of between layers, as the mask says.
  void drop(std::int64_t layer, const RnnRow& row, N* values) const {
    const std::uint8_t* const mask = kept_.mask(layer, row.step, row.sequence);
    const N scale = op_.rate < 1 ? static_cast<N>(1 / (1 - op_.rate)) : N(0);
    for (std::int64_t j = 0; j < shape_.width(); ++j) values[j] = mask[j] != 0 ? values[j] * scale : N(0);
  }
  [[nodiscard]] bool drops() const { return shape_.drops != 0 && op_.pass != RnnPass::inference; }

  /// What a layer is given at a row's step.
  void read_input(const Network& net, const RnnRow& row, N* into) const {
    if (net.layer == 0) {
      read_numbers(op_, op_.x.address, x_.at(row.step, row.sequence) * shape_.input, shape_.input, into);
      return;
    }
    std::copy_n(kept_.results(net.layer - 1, row.step, row.sequence), shape_.width(), into);
    if (drops()) drop(net.layer - 1, row, into);
  }
  /// h before a row's step.
  void read_before(const Network& net, const RnnRow& row, N* into) const {
    if (row.before < 0) {
      read_state(op_.h.first, net, row.sequence, into);
    } else {
      std::copy_n(kept_.results(net.layer, row.before, row.sequence) + net.direction * shape_.hidden,
                  shape_.hidden, into);
    }
  }
  void read_cells_before(const Network& net, const RnnRow& row, N* into) const {
    if (row.before < 0) {
      read_state(op_.c.first, net, row.sequence, into);
    } else {
      std::copy_n(kept_.cells(net.layer, row.before, row.sequence) + net.direction * shape_.hidden,
                  shape_.hidden, into);
    }
  }

  /// A matrix of gates × columns, as it lies or copied.
  const N* matrix(const Network& net, bool recurrent, Numbers& room) const {
    const std::int64_t at = shape_.matrix(net.layer, net.direction, recurrent);
    if (shape_.type == type_of<N>) return reinterpret_cast<const N*>(op_.weights) + at;
    room.resize(size(shape_.rows() * (recurrent ? shape_.hidden : shape_.input_of(net.layer))));
    read_numbers(op_, op_.weights, at, static_cast<std::int64_t>(room.size()), room.data());
    return room.data();
  }
  /// What the gates of all rows get of `values`, which are rows × columns.
  void to_gates(const Network& net, bool recurrent, const Numbers& values, Numbers& gates) {
    const auto count = static_cast<std::int64_t>(rows_.size());
    const std::int64_t columns = recurrent ? shape_.hidden : shape_.input_of(net.layer);
    gates.assign(size(count * shape_.rows()), N(0));
    if (shape_.has_bias(recurrent)) {
      const std::int64_t at = shape_.bias_of(net.layer, net.direction, recurrent);
      read_numbers(op_, op_.weights, at, shape_.rows(), gates.data());
      for (std::int64_t row = 1; row < count; ++row)
        std::copy_n(gates.data(), shape_.rows(), gates.data() + row * shape_.rows());
    }
    gemm(Trans::transpose, Trans::none, shape_.rows(), count, columns, N(1), matrix(net, recurrent, matrix_),
         columns, values.data(), columns, N(1), gates.data(), shape_.rows());
  }
  /// Adds what `gates`, gradients of the gates, say of what they were computed of.
  void from_gates(const Network& net, bool recurrent, const Numbers& gates, N* values) {
    const auto count = static_cast<std::int64_t>(rows_.size());
    const std::int64_t columns = recurrent ? shape_.hidden : shape_.input_of(net.layer);
    gemm(Trans::none, Trans::none, columns, count, shape_.rows(), N(1), matrix(net, recurrent, matrix_),
         columns, gates.data(), shape_.rows(), N(1), values, columns);
  }
  /// The slot of a gate's gradient: the third one of GRUs has two, as its state's part is multiplied.
  [[nodiscard]] std::int64_t slot_of(std::int64_t gate, bool recurrent) const {
    return shape_.cell == Cell::gru && recurrent && gate == 2 ? 3 : gate;
  }

  void store(const Network& net, const RnnRow& row, const N* h);
  void fill(const gpupool::operations::Sequences& of, std::uint64_t address, const RnnPlaces& places,
            std::int64_t number, std::int64_t first, std::int64_t end, std::int64_t width) const;
  void store_input_gradient(const Network& net, const RnnRow& row, N* gradient);

  const Rnn& op_;
  const RnnShape& shape_;
  const RnnPlaces &x_, &y_;
  DropoutSource& source_;
  RnnKept<N> kept_;
  std::vector<RnnRow> rows_;
  Numbers input_, before_, by_input_, by_state_, cells_, matrix_, state_, dh_, dc_;
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
void Recurrence<N>::store(const Network& net, const RnnRow& row, const N* h) {
  const std::int64_t at = net.direction * shape_.hidden;
  if (is_last(net)) {
    write_numbers(op_, op_.y.address, y_.at(row.step, row.sequence) * shape_.width() + at, shape_.hidden, h);
  } else if (drops()) {
    std::uint8_t* const mask = kept_.mask(net.layer, row.step, row.sequence) + at;
    const std::int64_t index =
        ((net.layer * shape_.steps + row.step) * shape_.batch + row.sequence) * shape_.width() + at;
    for (std::int64_t j = 0; j < shape_.hidden; ++j)
      mask[j] = source_.keeps(static_cast<std::uint64_t>(index + j)) ? 1 : 0;
  }
}

template <class N>
void Recurrence<N>::forward(std::int64_t round, std::int64_t first, std::int64_t end) {
  const Network net = network_of(round);
  const std::int64_t number = round % shape_.steps, hidden = shape_.hidden,
                     columns = shape_.input_of(net.layer);
  find_rows(net, number, first, end);
  const auto count = static_cast<std::int64_t>(rows_.size());
  input_.resize(size(count * columns));
  before_.resize(size(count * hidden));
  cells_.resize(size(hidden));
  for (std::int64_t i = 0; i < count; ++i) {
    read_input(net, rows_[size(i)], input_.data() + i * columns);
    read_before(net, rows_[size(i)], before_.data() + i * hidden);
  }
  if (count > 0) {
    to_gates(net, false, input_, by_input_);
    to_gates(net, true, before_, by_state_);
  }
  const bool lstm = shape_.cell == Cell::lstm;
  for (std::int64_t i = 0; i < count; ++i) {
    const RnnRow& row = rows_[size(i)];
    N* const h = kept_.results(net.layer, row.step, row.sequence) + net.direction * hidden;
    N* const c = lstm ? kept_.cells(net.layer, row.step, row.sequence) + net.direction * hidden : nullptr;
    if (lstm) read_cells_before(net, row, cells_.data());
    N* const slots = op_.pass == RnnPass::training
                         ? kept_.gates(net.layer, row.step, row.sequence, net.direction)
                         : nullptr;
    cell_step<N>(shape_.cell, hidden,
                 {by_input_.data() + i * shape_.rows(), by_state_.data() + i * shape_.rows(),
                  before_.data() + i * hidden, cells_.data(), h, c, slots});
    store(net, row, h);
  }
  if (is_last(net) && net.direction == 0) fill(op_.y, op_.y.address, y_, number, first, end, shape_.width());
  if (number != shape_.steps - 1) return;
  for (std::int64_t sequence = first; sequence < end; ++sequence) {
    if (op_.length(sequence) == 0) {
      copy_state(op_.h.first, op_.h.last, net, sequence);
      if (lstm) copy_state(op_.c.first, op_.c.last, net, sequence);
      continue;
    }
    const std::int64_t step = last_step(net, sequence), at = net.direction * hidden;
    write_state(op_.h.last, net, sequence, kept_.results(net.layer, step, sequence) + at);
    if (lstm) write_state(op_.c.last, net, sequence, kept_.cells(net.layer, step, sequence) + at);
  }
}

/// The second direction of a layer is differentiated first; the other one adds to what it left.
template <class N>
void Recurrence<N>::store_input_gradient(const Network& net, const RnnRow& row, N* gradient) {
  const std::int64_t columns = shape_.input_of(net.layer);
  if (net.layer > 0 && drops()) drop(net.layer - 1, row, gradient);
  N* const sum = kept_.input_gradient(net.layer, row.step, row.sequence, columns);
  if (net.direction != shape_.directions - 1) {
    for (std::int64_t j = 0; j < columns; ++j) gradient[j] += sum[j];
  }
  std::copy_n(gradient, columns, sum);
  if (net.layer == 0 && net.direction == 0 && op_.x.gradient != 0)
    write_numbers(op_, op_.x.gradient, x_.at(row.step, row.sequence) * columns, columns, gradient);
}

template <class N>
void Recurrence<N>::backward(std::int64_t round, std::int64_t first, std::int64_t end) {
  const Network net = network_of(round);
  const std::int64_t number = round % shape_.steps, hidden = shape_.hidden, rows = shape_.rows(),
                     columns = shape_.input_of(net.layer), at = net.direction * hidden;
  const bool lstm = shape_.cell == Cell::lstm;
  find_rows(net, number, first, end);
  const auto count = static_cast<std::int64_t>(rows_.size());
  dh_.resize(size(count * hidden));
  by_input_.resize(size(count * rows));
  by_state_.resize(size(count * rows));
  before_.resize(size(hidden));
  cells_.resize(size(hidden));
  state_.resize(size(hidden));
  for (std::int64_t i = 0; i < count; ++i) {
    const RnnRow& row = rows_[size(i)];
    N* const dh = dh_.data() + i * hidden;
    N *const next_dh = kept_.carried(0, row.sequence), *const dc = kept_.carried(1, row.sequence);
    if (number == op_.length(row.sequence) - 1) {
      read_state(op_.h.last_gradient, net, row.sequence, next_dh);
      read_state(op_.c.last_gradient, net, row.sequence, dc);
    }
    if (is_last(net)) {
      read_numbers(op_, op_.y.gradient, y_.at(row.step, row.sequence) * shape_.width() + at, hidden, dh);
    } else {
      std::copy_n(kept_.input_gradient(net.layer + 1, row.step, row.sequence, shape_.width()) + at, hidden,
                  dh);
    }
    for (std::int64_t j = 0; j < hidden; ++j) dh[j] += next_dh[j];
    read_before(net, row, before_.data());
    if (lstm) read_cells_before(net, row, cells_.data());
    const N* const c = lstm ? kept_.cells(net.layer, row.step, row.sequence) + at : nullptr;
    N* const slots = kept_.gates(net.layer, row.step, row.sequence, net.direction);
    cell_gradient<N>(shape_.cell, hidden,
                     {before_.data(), cells_.data(), kept_.results(net.layer, row.step, row.sequence) + at, c,
                      dh, dc, slots});
    for (std::int64_t gate = 0; gate < shape_.gates(); ++gate) {
      std::copy_n(slots + slot_of(gate, false) * hidden, hidden, by_input_.data() + i * rows + gate * hidden);
      std::copy_n(slots + slot_of(gate, true) * hidden, hidden, by_state_.data() + i * rows + gate * hidden);
    }
  }
  if (count > 0) {
    from_gates(net, true, by_state_, dh_.data());
    input_.assign(size(count * columns), N(0));
    from_gates(net, false, by_input_, input_.data());
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const RnnRow& row = rows_[size(i)];
    std::copy_n(dh_.data() + i * hidden, hidden, kept_.carried(0, row.sequence));
    store_input_gradient(net, row, input_.data() + i * columns);
  }
  if (net.layer == 0 && net.direction == 0 && op_.x.gradient != 0)
    fill(op_.x, op_.x.gradient, x_, number, first, end, shape_.input);
  if (number != 0) return;
  for (std::int64_t sequence = first; sequence < end; ++sequence) {
    if (op_.length(sequence) == 0) {
      copy_state(op_.h.last_gradient, op_.h.first_gradient, net, sequence);
      if (lstm) copy_state(op_.c.last_gradient, op_.c.first_gradient, net, sequence);
      continue;
    }
    write_state(op_.h.first_gradient, net, sequence, kept_.carried(0, sequence));
    if (lstm) write_state(op_.c.first_gradient, net, sequence, kept_.carried(1, sequence));
  }
}

template <class N>
void Recurrence<N>::weights(const Network& net, std::int64_t first_row, std::int64_t end_row) {
  const std::int64_t hidden = shape_.hidden, count = end_row - first_row;
  for (const bool recurrent : {false, true}) {
    const std::int64_t columns = recurrent ? hidden : shape_.input_of(net.layer);
    Numbers sums(size(count * columns), N(0)), biases(size(count), N(0));
    for (std::int64_t number = 0; number < shape_.steps; ++number) {
      find_rows(net, number, 0, shape_.batch);
      const auto terms = static_cast<std::int64_t>(rows_.size());
      if (terms == 0) break;
      input_.resize(size(terms * columns));
      by_input_.resize(size(terms * count));
      for (std::int64_t i = 0; i < terms; ++i) {
        const RnnRow& row = rows_[size(i)];
        N* const values = input_.data() + i * columns;
        recurrent ? read_before(net, row, values) : read_input(net, row, values);
        const N* const slots = kept_.gates(net.layer, row.step, row.sequence, net.direction);
        for (std::int64_t n = 0; n < count; ++n) {
          const std::int64_t gate = (first_row + n) / hidden, j = (first_row + n) % hidden;
          const N value = slots[slot_of(gate, recurrent) * hidden + j];
          by_input_[size(i * count + n)] = value;
          biases[size(n)] += value;
        }
      }
      gemm(Trans::none, Trans::transpose, columns, count, terms, N(1), input_.data(), columns,
           by_input_.data(), count, N(1), sums.data(), columns);
    }
    const auto add = [&](std::int64_t at, Numbers& values) {
      const auto size_of = static_cast<std::int64_t>(values.size());
      if (op_.adds != 0) {
        matrix_.resize(values.size());
        read_numbers(op_, op_.weights_gradient, at, size_of, matrix_.data());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += matrix_[i];
      }
      write_numbers(op_, op_.weights_gradient, at, size_of, values.data());
    };
    add(shape_.matrix(net.layer, net.direction, recurrent) + first_row * columns, sums);
    if (shape_.has_bias(recurrent))
      add(shape_.bias_of(net.layer, net.direction, recurrent) + first_row, biases);
  }
}

template <class N>
void recur(const Rnn& op, const Parts& parts, const RnnPlaces& x, const RnnPlaces& y, DropoutSource& source) {
  Recurrence<N> recurrence(op, x, y, source);
  parts.each(op.parts(), [&](std::uint64_t part) {
    const auto number = static_cast<std::int64_t>(part);
    if (op.pass == RnnPass::backward_weights) {
      const std::int64_t block = number % op.row_blocks(), both = number / op.row_blocks();
      const std::int64_t from = block * Rnn::rows_of_a_part;
      recurrence.weights({both / op.shape.directions, both % op.shape.directions}, from,
                         std::min(from + Rnn::rows_of_a_part, op.shape.rows()));
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
