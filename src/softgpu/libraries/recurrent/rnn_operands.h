// What the steps of a recurrent network's layers read and write: in the program's memory, and what is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/recurrent/rnn_memory.h"

namespace softgpu::libraries {

using gpupool::operations::Cell;

template <class N>
constexpr Element type_of = std::is_same_v<N, float> ? Element::f32 : Element::f64;

/// One layer in one direction.
struct Network {
  std::int64_t layer, direction;
};

template <class N>
struct RnnOperands {
  using Numbers = std::vector<N>;

  const Rnn& op;
  const gpupool::operations::RnnShape& shape;
  const RnnPlaces &x, &y;
  RnnKept<N> kept;

  RnnOperands(const Rnn& of, const RnnPlaces& x_places, const RnnPlaces& y_places)
      : op(of), shape(of.shape), x(x_places), y(y_places), kept(of) {}

  /// The sequences of [first, end) that have a step of this number in the direction.
  void find_rows(const Network& net, std::int64_t number, std::int64_t first, std::int64_t end,
                 std::vector<RnnRow>& rows) const {
    rows.clear();
    for (std::int64_t sequence = first; sequence < end; ++sequence) {
      const std::int64_t length = op.length(sequence);
      if (number >= length) continue;
      const bool turned = net.direction != 0;
      const std::int64_t step = turned ? length - 1 - number : number;
      rows.push_back({sequence, step, number == 0 ? -1 : turned ? step + 1 : step - 1});
    }
  }

  /// A state of one sequence in the program's memory: `size` numbers, as h or c has.
  void read_state(std::uint64_t address, const Network& net, std::int64_t sequence, std::int64_t size,
                  N* into) const {
    if (address == 0) {
      std::fill_n(into, size, N(0));
    } else {
      read_numbers(op, address, state_at(net, sequence) * size, size, into);
    }
  }
  void write_state(std::uint64_t address, const Network& net, std::int64_t sequence, std::int64_t size,
                   const N* from) const {
    if (address != 0) write_numbers(op, address, state_at(net, sequence) * size, size, from);
  }
  /// A state that the sequence never changed.
  void copy_state(std::uint64_t from, std::uint64_t into, const Network& net, std::int64_t sequence,
                  std::int64_t size) const {
    Numbers state(static_cast<std::size_t>(size));
    read_state(from, net, sequence, size, state.data());
    write_state(into, net, sequence, size, state.data());
  }

  /// Values that something is left out of between layers, as the mask says.
  void drop(std::int64_t layer, const RnnRow& row, N* values) const {
    const std::uint8_t* const mask = kept.mask(layer, row.step, row.sequence);
    const N scale = op.rate < 1 ? static_cast<N>(1 / (1 - op.rate)) : N(0);
    for (std::int64_t j = 0; j < shape.width(); ++j) values[j] = mask[j] != 0 ? values[j] * scale : N(0);
  }
  [[nodiscard]] bool drops() const { return shape.drops != 0 && op.pass != RnnPass::inference; }

  /// What a layer is given at a row's step.
  void read_input(const Network& net, const RnnRow& row, N* into) const {
    if (net.layer == 0) {
      read_numbers(op, op.x.address, x.at(row.step, row.sequence) * shape.input, shape.input, into);
      return;
    }
    std::copy_n(kept.results(net.layer - 1, row.step, row.sequence), shape.width(), into);
    if (drops()) drop(net.layer - 1, row, into);
  }
  /// h before a row's step.
  void read_before(const Network& net, const RnnRow& row, N* into) const {
    if (row.before < 0) {
      read_state(op.h.first, net, row.sequence, shape.state(), into);
    } else {
      std::copy_n(kept.results(net.layer, row.before, row.sequence) + net.direction * shape.state(),
                  shape.state(), into);
    }
  }
  void read_cells_before(const Network& net, const RnnRow& row, N* into) const {
    if (row.before < 0) {
      read_state(op.c.first, net, row.sequence, shape.hidden, into);
    } else {
      std::copy_n(kept.cells(net.layer, row.before, row.sequence, net.direction), shape.hidden, into);
    }
  }

  /// So many of the weights from one on, as they lie or copied.
  const N* weights(std::int64_t at, std::int64_t count, Numbers& room) const {
    if (shape.type == type_of<N>) return reinterpret_cast<const N*>(op.weights) + at;
    room.resize(static_cast<std::size_t>(count));
    read_numbers(op, op.weights, at, count, room.data());
    return room.data();
  }

  [[nodiscard]] std::int64_t columns(const Network& net, bool recurrent) const {
    return recurrent ? shape.state() : shape.input_of(net.layer);
  }
  /// The slot of a gate's gradient: the third one of GRUs has two, as its state's part is multiplied.
  [[nodiscard]] std::int64_t slot_of(std::int64_t gate, bool recurrent) const {
    return shape.cell == Cell::gru && recurrent && gate == 2 ? 3 : gate;
  }

 private:
  [[nodiscard]] std::int64_t state_at(const Network& net, std::int64_t sequence) const {
    return (net.layer * shape.directions + net.direction) * shape.batch + sequence;
  }
};

}  // namespace softgpu::libraries
