// Recurrent networks: layers of cells, one direction or both, with their gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/dense.h"
#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

/// The numbers of cudnnRNNMode_t.
enum class Cell : std::uint8_t { relu = 0, tanh = 1, lstm = 2, gru = 3 };

/// The numbers of cudnnRNNBiasMode_t: a cell's input, its state, or both have one.
enum class RnnBias : std::uint8_t { none = 0, input = 1, both = 2, recurrent = 3 };

/// The numbers of cudnnRNNDataLayout_t: steps one after the other (without gaps where sequences have ended),
/// or sequences one after the other.
enum class SequenceLayout : std::uint8_t { steps = 0, packed = 1, sequences = 2 };

enum class RnnPass : std::uint8_t { inference = 0, training = 1, backward_data = 2, backward_weights = 3 };

/// x or y: a vector for each step of each sequence. Address 0: absent.
struct Sequences {
  std::uint64_t address = 0, gradient = 0;
  double fill = 0;  // of steps behind a sequence's end, where `fills`
  SequenceLayout layout = SequenceLayout::steps;
  Flag fills = false;
  std::uint8_t reserved[6] = {};
};

/// h or c: before the first step and behind the last one, for each layer and direction. Address 0: zeros, or
/// not wanted.
struct RnnState {
  std::uint64_t first = 0, last = 0;
  std::uint64_t first_gradient = 0, last_gradient = 0;
};

/// Sizes: what memory a network needs follows from them alone.
struct RnnShape {
  std::int64_t steps = 1, batch = 1, input = 1, hidden = 1, layers = 1, directions = 1;
  Cell cell = Cell::tanh;
  RnnBias bias = RnnBias::both;
  Element type = Element::f32;
  Flag drops = false;  // something is left out between layers
  std::int32_t projection =
      0;  // numbers of an LSTM's h, which a matrix makes of the cell's; 0: there is none

  [[nodiscard]] bool sound() const {
    if (projection < 0 || (projects() && (cell != Cell::lstm || projection >= hidden))) return false;
    constexpr std::int64_t most = std::int64_t{1} << 24;
    std::int64_t all = projects() ? 128 : 64;  // more than what is kept of an element
    for (const std::int64_t size : {steps, batch, hidden, layers, directions}) {
      if (size < 1 || size > most || __builtin_mul_overflow(all, size, &all) || all > max_size) return false;
    }
    return input >= 1 && input <= most && steps * batch <= max_size / 64 / input &&
           rows() * std::max(input, width()) <= max_size / 64 / layers && directions <= 2;
  }
  [[nodiscard]] std::int64_t gates() const { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
  [[nodiscard]] std::int64_t rows() const { return gates() * hidden; }  // of a matrix
  [[nodiscard]] bool projects() const { return projection != 0; }
  [[nodiscard]] std::int64_t state() const { return projects() ? projection : hidden; }  // numbers of h
  [[nodiscard]] std::int64_t width() const { return directions * state(); }
  [[nodiscard]] std::int64_t input_of(std::int64_t layer) const { return layer == 0 ? input : width(); }
  [[nodiscard]] std::int64_t biases() const {
    return bias == RnnBias::none ? 0 : bias == RnnBias::both ? 2 : 1;
  }

  // Weights, in elements: the matrices of all layers and directions (of the input, then of the state, gate by
  // gate, then the projection), then their biases in the same order.
  [[nodiscard]] std::int64_t matrices(std::int64_t layer) const {  // of one direction
    return rows() * (input_of(layer) + state()) + projection * hidden;
  }
  [[nodiscard]] std::int64_t matrix(std::int64_t layer, std::int64_t direction, bool recurrent) const {
    const std::int64_t before = layer == 0 ? 0 : directions * (matrices(0) + (layer - 1) * matrices(1));
    return before + direction * matrices(layer) + (recurrent ? rows() * input_of(layer) : 0);
  }
  /// Of `projection` rows, a column for each of the cell's numbers.
  [[nodiscard]] std::int64_t projection_of(std::int64_t layer, std::int64_t direction) const {
    return matrix(layer, direction, true) + rows() * state();
  }
  [[nodiscard]] bool has_bias(bool recurrent) const {
    return bias == RnnBias::both || bias == (recurrent ? RnnBias::recurrent : RnnBias::input);
  }
  [[nodiscard]] std::int64_t bias_of(std::int64_t layer, std::int64_t direction, bool recurrent) const {
    const bool second = recurrent && bias == RnnBias::both;
    return matrix(layers, 0, false) +
           ((layer * directions + direction) * biases() + (second ? 1 : 0)) * rows();
  }
  [[nodiscard]] std::int64_t weights() const { return bias_of(layers, 0, false); }

  /// Bytes of a number that is kept between steps: more exact than what the program's memory has.
  [[nodiscard]] std::int64_t kept() const { return type == Element::f64 ? 8 : 4; }
  /// All steps of all sequences of one layer's result.
  [[nodiscard]] std::int64_t results() const { return steps * batch * width(); }
  /// The cells of all steps of all sequences of one layer.
  [[nodiscard]] std::int64_t cells() const { return steps * batch * directions * hidden; }
  /// Gates' numbers that a gradient needs, for each of a layer's cells.
  [[nodiscard]] std::int64_t slots() const { return cell == Cell::lstm || cell == Cell::gru ? 4 : 1; }

  // What is kept, in bytes: results of all layers, cells of LSTMs, and for gradients gates, what a projection
  // was given, the gradient of what it made, and the mask.
  [[nodiscard]] std::int64_t cells_at() const { return layers * results() * kept(); }
  [[nodiscard]] std::int64_t gates_at() const {
    return cells_at() + (cell == Cell::lstm ? layers * cells() * kept() : 0);
  }
  [[nodiscard]] std::int64_t projected_at() const { return gates_at() + layers * cells() * slots() * kept(); }
  [[nodiscard]] std::int64_t made_gradient_at() const {
    return projected_at() + (projects() ? layers * cells() * kept() : 0);
  }
  [[nodiscard]] std::int64_t mask_at() const {
    return made_gradient_at() + (projects() ? layers * results() * kept() : 0);
  }
  [[nodiscard]] std::int64_t reserve() const { return mask_at() + (drops ? (layers - 1) * results() : 0); }
  /// What programs are told to keep: NVIDIA's cuDNN, where a node gives it networks, keeps some numbers more.
  /// Where something is left out it gets each layer by itself, and their results are kept beside.
  [[nodiscard]] std::int64_t reserve_to_have() const {
    constexpr std::int64_t of_alignments = 1 << 16;
    const std::int64_t more = drops ? layers - 1 : 0, of_a_layer = 2 * results() * kept() + 2 * of_alignments;
    return reserve() + reserve() / 2 + of_alignments + more * of_a_layer;
  }
  /// Without gradients.
  [[nodiscard]] std::int64_t inference() const { return gates_at(); }

  // What gradients need beside: those of a step's h and c, and those of two layers' results.
  [[nodiscard]] std::int64_t between() const { return steps * batch * std::max(input, width()); }
  [[nodiscard]] std::int64_t workspace() const { return (2 * batch * hidden + 2 * between()) * kept(); }
};

/// All of cudnnRNNForward, …BackwardData_v8 or …BackwardWeights_v8.
///
/// A step waits for the one before. So a launch has one block for some sequences, and the rounds of a block,
/// which follow each other, are the steps of all layers. The gradients of weights do not wait for each other.
struct Rnn {
  static constexpr const char* name = "cudnn_rnn";
  static constexpr std::int64_t most_lengths = 1024;  // more sequences have all one length
  static constexpr std::int64_t rows_of_a_part = 64;  // of a matrix whose gradient is computed

  RnnShape shape;
  Sequences x, y;
  RnnState h, c;
  std::uint64_t weights = 0, weights_gradient = 0;
  std::uint64_t reserve = 0, workspace = 0;
  std::uint64_t reserve_bytes = 0;  // that the program has: NVIDIA's library may want more than ours
  std::uint64_t states = 0;         // of dropout
  double rate = 0;
  RnnPass pass = RnnPass::inference;
  Flag adds = true;            // to the gradients of weights that are there
  Flag lengths_given = false;  // else all sequences have all steps
  std::uint8_t math = 0;       // cudnnMathType_t
  std::uint8_t reserved[4] = {};
  std::uint16_t lengths[most_lengths] = {};

  [[nodiscard]] bool sound() const {
    return shape.sound() && pass <= RnnPass::backward_weights && shape.cell <= Cell::gru &&
           shape.bias <= RnnBias::recurrent && (!lengths_given || shape.batch <= most_lengths);
  }
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const {
    return lengths_given ? std::min<std::int64_t>(lengths[sequence], shape.steps) : shape.steps;
  }
  /// Sequences of one block.
  [[nodiscard]] std::int64_t sequences() const {
    constexpr std::int64_t least = 8, most_blocks = 8;
    return std::max(least, pieces(shape.batch, most_blocks));
  }
  [[nodiscard]] std::int64_t rounds() const { return shape.layers * shape.directions * shape.steps; }
  [[nodiscard]] std::int64_t gate_blocks() const { return pieces(shape.rows(), rows_of_a_part); }
  /// Of all matrices of a layer's direction.
  [[nodiscard]] std::int64_t row_blocks() const {
    return gate_blocks() + pieces(shape.projection, rows_of_a_part);
  }
  /// Blocks of a launch.
  [[nodiscard]] std::uint64_t blocks() const {
    return pass == RnnPass::backward_weights ? parts() : parts_of({pieces(shape.batch, sequences())});
  }
  [[nodiscard]] std::uint64_t parts() const {
    return pass == RnnPass::backward_weights ? parts_of({row_blocks(), shape.directions, shape.layers})
                                             : parts_of({pieces(shape.batch, sequences()), rounds()});
  }
};

}  // namespace gpupool::operations
