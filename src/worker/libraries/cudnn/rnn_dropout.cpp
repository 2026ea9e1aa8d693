// Recurrent networks that leave something out between their layers: cuDNN gets each layer by itself, and the
// random numbers are those of our cuDNN. What gradients need of all layers lies in the program's reserve
// space.
#include <algorithm>
#include <vector>

#include "worker/libraries/cudnn/dropout.h"
#include "worker/libraries/cudnn/rnn.h"

namespace gpupool::worker {
namespace {

using operations::Dropping;
using operations::Rnn;
using operations::RnnPass;
using operations::RnnShape;
using operations::RnnState;
using operations::SequenceLayout;
using operations::Tensor;

constexpr std::uint64_t aligned(std::int64_t bytes) {
  constexpr std::uint64_t alignment = 256;
  return (static_cast<std::uint64_t>(bytes) + alignment - 1) / alignment * alignment;
}

class DroppingRnn {
 public:
  DroppingRnn(const Execution& x, const Rnn& of)
      : x_(x),
        of_(of),
        shape_(of.shape),
        element_(static_cast<std::int64_t>(bytes_of(of.shape.type))),
        mask_of_a_step_(operations::bytes_of_mask(shape_.batch * shape_.width())) {}

  CUresult run() {
    if (const CUresult bad = place(); bad != CUDA_SUCCESS) return bad;
    const bool back = of_.pass == RnnPass::backward_data;
    for (std::int64_t n = 0; n < shape_.layers; ++n) {
      const std::int64_t layer = back ? shape_.layers - 1 - n : n;
      if (const CUresult bad = run_layers(x_, {layer_of(layer), shape_, layer}); bad != CUDA_SUCCESS)
        return bad;
      if (const CUresult bad = drop_behind(layer); bad != CUDA_SUCCESS) return bad;
    }
    return of_.pass == RnnPass::training ? move_states_on(x_, of_.states, number_of(shape_.layers - 1))
                                         : CUDA_SUCCESS;
  }

 private:
  /// Where a layer has its parts of the reserve space.
  struct Places {
    std::uint64_t reserve = 0, reserve_bytes = 0;
    std::uint64_t result = 0, dropped = 0, mask = 0;
  };

  [[nodiscard]] std::uint64_t number_of(std::int64_t layer) const {
    return static_cast<std::uint64_t>(layer * shape_.results());
  }

  CUresult place() {
    std::uint64_t end = of_.reserve;
    std::size_t bytes = 0;
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      if (layer < 2) {  // from the second one on they are alike
        places_.emplace_back();
        const CUresult bad = reserve_of(x_, {layer_of(layer), shape_, layer}, bytes);
        places_.pop_back();
        if (bad != CUDA_SUCCESS) return bad;
      }
      Places at;
      at.reserve = end;
      at.reserve_bytes = bytes;
      at.result = at.reserve + aligned(static_cast<std::int64_t>(bytes));
      at.dropped = at.result + aligned(shape_.results() * element_);
      at.mask = at.dropped + aligned(shape_.results() * element_);
      end = layer + 1 == shape_.layers ? at.result : at.mask + aligned(shape_.steps * mask_of_a_step_);
      places_.push_back(at);
    }
    return end - of_.reserve > of_.reserve_bytes ? refuse_reserve(x_, end - of_.reserve, of_.reserve_bytes)
                                                 : CUDA_SUCCESS;
  }

  /// One of two places for gradients of a layer's input, which are those of the layer before.
  [[nodiscard]] std::uint64_t gradient(std::int64_t layer) const {
    return of_.workspace + static_cast<std::uint64_t>(layer % 2 * shape_.between() * shape_.kept());
  }

  /// `numbers`: of one sequence in one direction.
  [[nodiscard]] RnnState state_of(const RnnState& all, std::int64_t layer, std::int64_t numbers) const {
    const auto distance =
        static_cast<std::uint64_t>(layer * shape_.batch * shape_.directions * numbers * element_);
    RnnState made = all;
    for (std::uint64_t* const address :
         {&made.first, &made.last, &made.first_gradient, &made.last_gradient}) {
      if (*address != 0) *address += distance;
    }
    return made;
  }

  /// The layer as a network of its own.
  [[nodiscard]] Rnn layer_of(std::int64_t layer) const {
    Rnn made = of_;
    made.shape.layers = 1;
    made.shape.drops = false;
    made.shape.input = shape_.input_of(layer);
    made.h = state_of(of_.h, layer, shape_.state());
    made.c = state_of(of_.c, layer, shape_.hidden);
    const auto n = static_cast<std::size_t>(layer);
    made.reserve = places_[n].reserve;
    made.reserve_bytes = places_[n].reserve_bytes;
    if (layer > 0) {
      made.x = {places_[n - 1].dropped, gradient(layer), 0, of_.x.layout, true, {}};
    }
    if (layer + 1 < shape_.layers) {
      made.y = {places_[n].result, gradient(layer + 1), 0, of_.y.layout, true, {}};
    }
    return made;
  }

  /// Between a layer and the next one that is computed.
  CUresult drop_behind(std::int64_t layer) {
    if (of_.pass == RnnPass::training && layer + 1 < shape_.layers) {
      const Places& at = places_[static_cast<std::size_t>(layer)];
      return drop_results(layer, at.result, at.dropped, Dropping::forward);
    }
    if (of_.pass == RnnPass::backward_data && layer > 0)
      return drop_results(layer - 1, gradient(layer), gradient(layer), Dropping::backward);
    return CUDA_SUCCESS;
  }

  /// An element has the number that its layer, step, sequence and place say, wherever it lies.
  CUresult drop_results(std::int64_t layer, std::uint64_t from, std::uint64_t into, Dropping what) {
    const std::int64_t width = shape_.width();
    Masked how{places_[static_cast<std::size_t>(layer)].mask, of_.states, of_.rate, what, number_of(layer)};
    Tensor tensor;
    tensor.type = shape_.type;
    tensor.dims = 3;
    const std::int64_t sizes[] = {shape_.steps, shape_.batch, width};
    const bool by_steps = of_.y.layout != SequenceLayout::sequences;
    const std::int64_t strides[] = {by_steps ? shape_.batch * width : width,
                                    by_steps ? width : shape_.steps * width, 1};
    std::copy_n(sizes, 3, tensor.sizes);
    std::copy_n(strides, 3, tensor.strides);
    const auto at = [&](std::uint64_t address) {
      Tensor placed = tensor;
      placed.address = address;
      return placed;
    };
    if (of_.y.layout != SequenceLayout::packed || of_.lengths_given == 0)
      return drop(x_, at(from), at(into), how);
    // Sequences become shorter, and the steps lie without gaps: each is dropped by itself.
    tensor.sizes[0] = 1;
    for (std::int64_t step = 0; step < shape_.steps; ++step) {
      std::int64_t there = 0;
      while (there < shape_.batch && of_.length(there) > step) ++there;
      if (there == 0) break;
      tensor.sizes[1] = there;
      if (const CUresult bad = drop(x_, at(from), at(into), how); bad != CUDA_SUCCESS) return bad;
      const auto bytes = static_cast<std::uint64_t>(there * width * element_);
      from += bytes;
      into += bytes;
      how.mask += static_cast<std::uint64_t>(mask_of_a_step_);
      how.first += static_cast<std::uint64_t>(shape_.batch * width);
    }
    return CUDA_SUCCESS;
  }

  const Execution& x_;
  const Rnn& of_;
  const RnnShape& shape_;
  const std::int64_t element_, mask_of_a_step_;
  std::vector<Places> places_;
};

}  // namespace

CUresult run_with_dropout(const Execution& x, const Rnn& of) {
  return DroppingRnn(x, of).run();
}

}  // namespace gpupool::worker
