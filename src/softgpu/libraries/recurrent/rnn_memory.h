// What a recurrent network reads and writes: vectors of steps and sequences, states, weights, and what is
// kept.
#pragma once

#include <cstdint>
#include <vector>

#include "libraries/operations/rnn.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {

using gpupool::operations::Rnn;
using gpupool::operations::RnnPass;
using gpupool::operations::SequenceLayout;

/// One step of one sequence, and the step before it in a direction.
struct RnnRow {
  std::int64_t sequence, step, before;
};

/// Where vectors of a layout lie, in vectors.
class RnnPlaces {
 public:
  RnnPlaces(const Rnn& op, SequenceLayout layout);
  [[nodiscard]] std::int64_t at(std::int64_t step, std::int64_t sequence) const {
    switch (layout_) {
      case SequenceLayout::packed:
        return before_[static_cast<std::size_t>(step)] + sequence;
      case SequenceLayout::sequences:
        return sequence * steps_ + step;
      default:
        return step * batch_ + sequence;
    }
  }
  [[nodiscard]] std::int64_t vectors() const { return vectors_; }
  /// Whether steps behind the end of a sequence have a place.
  [[nodiscard]] bool has_ends() const { return layout_ != SequenceLayout::packed; }

 private:
  SequenceLayout layout_;
  std::int64_t steps_, batch_, vectors_;
  std::vector<std::int64_t> before_;  // vectors before each step
};

/// Ends the operation unless all that its pass touches is device memory.
void check_rnn(const Rnn& op, const RnnPlaces& x, const RnnPlaces& y, const Memory& memory);

/// Numbers of the program's type from an address on.
template <class N>
void read_numbers(const Rnn& op, std::uint64_t address, std::int64_t offset, std::int64_t count, N* into) {
  Tensor tensor;
  tensor.address = address;
  tensor.type = op.shape.type;
  read_row(tensor, offset, 1, count, into);
}
template <class N>
void write_numbers(const Rnn& op, std::uint64_t address, std::int64_t offset, std::int64_t count,
                   const N* from) {
  Tensor tensor;
  tensor.address = address;
  tensor.type = op.shape.type;
  write_row(tensor, offset, 1, count, from);
}

/// What one pass keeps for the next one, and for its own later steps.
template <class N>
class RnnKept {
 public:
  explicit RnnKept(const Rnn& op) : op_(op) {}

  [[nodiscard]] N* results(std::int64_t layer, std::int64_t step, std::int64_t sequence) const {
    return numbers(op_.reserve) + index(layer, step, sequence) * op_.shape.width();
  }
  [[nodiscard]] N* cells(std::int64_t layer, std::int64_t step, std::int64_t sequence,
                         std::int64_t direction) const {
    return kept(op_.shape.cells_at(), layer, step, sequence, direction, op_.shape.hidden);
  }
  [[nodiscard]] N* gates(std::int64_t layer, std::int64_t step, std::int64_t sequence,
                         std::int64_t direction) const {
    return kept(op_.shape.gates_at(), layer, step, sequence, direction, op_.shape.hidden * op_.shape.slots());
  }
  /// What a projection is given.
  [[nodiscard]] N* projected(std::int64_t layer, std::int64_t step, std::int64_t sequence,
                             std::int64_t direction) const {
    return kept(op_.shape.projected_at(), layer, step, sequence, direction, op_.shape.hidden);
  }
  /// The gradient of what it makes.
  [[nodiscard]] N* made_gradient(std::int64_t layer, std::int64_t step, std::int64_t sequence,
                                 std::int64_t direction) const {
    return kept(op_.shape.made_gradient_at(), layer, step, sequence, direction, op_.shape.projection);
  }
  /// For each result of a layer, whether the next layer gets it.
  [[nodiscard]] std::uint8_t* mask(std::int64_t layer, std::int64_t step, std::int64_t sequence) const {
    return reinterpret_cast<std::uint8_t*>(op_.reserve) + op_.shape.mask_at() +
           index(layer, step, sequence) * op_.shape.width();
  }
  /// Gradients of a state between steps; 0: of h, 1: of c.
  [[nodiscard]] N* carried(int which, std::int64_t sequence) const {
    return numbers(op_.workspace) + (which * op_.shape.batch + sequence) * op_.shape.hidden;
  }
  /// Gradient of a layer's input, of `width` numbers: that of the results of the layer before.
  [[nodiscard]] N* input_gradient(std::int64_t layer, std::int64_t step, std::int64_t sequence,
                                  std::int64_t width) const {
    return numbers(op_.workspace) + 2 * op_.shape.batch * op_.shape.hidden + layer % 2 * op_.shape.between() +
           index(0, step, sequence) * width;
  }

 private:
  [[nodiscard]] std::int64_t index(std::int64_t layer, std::int64_t step, std::int64_t sequence) const {
    return (layer * op_.shape.steps + step) * op_.shape.batch + sequence;
  }
  /// So many numbers of each step of each sequence in each direction.
  [[nodiscard]] N* kept(std::int64_t at, std::int64_t layer, std::int64_t step, std::int64_t sequence,
                        std::int64_t direction, std::int64_t count) const {
    return numbers(op_.reserve + static_cast<std::uint64_t>(at)) +
           (index(layer, step, sequence) * op_.shape.directions + direction) * count;
  }
  static N* numbers(std::uint64_t address) { return reinterpret_cast<N*>(address); }
  const Rnn& op_;
};

}  // namespace softgpu::libraries
