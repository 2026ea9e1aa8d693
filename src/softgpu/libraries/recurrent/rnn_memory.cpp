#include "softgpu/libraries/recurrent/rnn_memory.h"

#include <algorithm>

namespace softgpu::libraries {
namespace {

using gpupool::operations::Element;
using gpupool::operations::RnnShape;

[[noreturn]] void wrong_network(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, why);
}

}  // namespace

RnnPlaces::RnnPlaces(const Rnn& op, SequenceLayout layout)
    : layout_(layout),
      steps_(op.shape.steps),
      batch_(op.shape.batch),
      vectors_(op.shape.steps * op.shape.batch) {
  if (layout > SequenceLayout::sequences) wrong_network("no such layout of sequences");
  if (layout != SequenceLayout::packed) return;
  before_.assign(static_cast<std::size_t>(steps_) + 1, 0);
  for (std::int64_t sequence = 0; sequence < batch_; ++sequence) {
    if (sequence > 0 && op.length(sequence) > op.length(sequence - 1))
      wrong_network("packed sequences that become longer");
    // So many steps have one vector more.
    ++before_[static_cast<std::size_t>(op.length(sequence))];
  }
  // From how many sequences end at each step to how many are still there, to how many vectors lie before.
  std::int64_t there = batch_, sum = 0;
  for (std::int64_t& step : before_) {
    there -= step;
    step = sum;
    sum += there;
  }
  vectors_ = sum;
}

void check_rnn(const Rnn& op, const RnnPlaces& x, const RnnPlaces& y, const Memory& memory) {
  const RnnShape& shape = op.shape;
  const Element type = shape.type;
  if (type != Element::f32 && type != Element::f64 && type != Element::f16 && type != Element::bf16)
    wrong_network("a type that networks are not computed in");
  if (!(op.rate >= 0 && op.rate <= 1)) wrong_network("a rate of dropout that is none");
  const std::size_t bytes = bytes_of(type);
  const auto check = [&](std::uint64_t address, std::int64_t count, const char* what) {
    memory.check(address, static_cast<std::uint64_t>(count), bytes, what);
  };
  const auto check_state = [&](std::uint64_t address, const char* what) {
    if (address != 0) check(address, shape.layers * shape.batch * shape.width(), what);
  };
  const auto check_cells = [&](std::uint64_t address, const char* what) {
    if (address != 0) check(address, shape.layers * shape.batch * shape.directions * shape.hidden, what);
  };
  const bool forward = op.pass <= RnnPass::training, weights = op.pass == RnnPass::backward_weights;
  if (forward || weights) check(op.x.address, x.vectors() * shape.input, "the input");
  if (forward) check(op.y.address, y.vectors() * shape.width(), "the result");
  check_state(op.h.first, "the first state");
  check_cells(op.c.first, "the first cells");
  if (forward) {
    check_state(op.h.last, "the last state");
    check_cells(op.c.last, "the last cells");
  }
  if (!weights) check(op.weights, shape.weights(), "the weights");
  if (weights) check(op.weights_gradient, shape.weights(), "the gradient of the weights");
  if (op.pass == RnnPass::backward_data) {
    check(op.y.gradient, y.vectors() * shape.width(), "the gradient of the result");
    if (op.x.gradient != 0) check(op.x.gradient, x.vectors() * shape.input, "the gradient of the input");
    check_state(op.h.first_gradient, "the gradient of the first state");
    check_state(op.h.last_gradient, "the gradient of the last state");
    check_cells(op.c.first_gradient, "the gradient of the first cells");
    check_cells(op.c.last_gradient, "the gradient of the last cells");
    memory.check(op.workspace, static_cast<std::uint64_t>(shape.workspace() / shape.kept()),
                 static_cast<std::size_t>(shape.kept()), "the workspace");
  }
  const bool inference = op.pass == RnnPass::inference;
  const std::int64_t numbers = inference ? shape.inference() : shape.mask_at();
  memory.check(op.reserve, static_cast<std::uint64_t>(numbers / shape.kept()),
               static_cast<std::size_t>(shape.kept()), inference ? "the workspace" : "the reserve space");
  if (!inference)
    memory.check(op.reserve, static_cast<std::uint64_t>(shape.reserve()), 1, "the reserve space");
}

}  // namespace softgpu::libraries
