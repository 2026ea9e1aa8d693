// Dropout. Random numbers are computed by their position, so each part has its own.
#include "libraries/operations/dropout.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "softgpu/libraries/dropout_states.h"
#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Dropout;
using gpupool::operations::Dropping;

enum : std::size_t { dropout_from, dropout_into, dropout_operands };
using DropoutWalk = Loops<dropout_operands>;

/// Bits of the mask for elements [from, to), `from` a multiple of eight.
void draw(DropoutSource& source, std::int64_t from, std::int64_t to, std::uint8_t* mask) {
  std::fill(mask, mask + gpupool::operations::bytes_of_mask(to - from), std::uint8_t{0});
  for (std::int64_t i = from; i < to; ++i) {
    const bool kept = source.keeps(static_cast<std::uint64_t>(i));
    mask[(i - from) / 8] |= static_cast<std::uint8_t>((kept ? 1U : 0U) << (i % 8));
  }
}

void check(const Dropout& op, const Memory& memory) {
  if (!(op.rate >= 0 && op.rate <= 1))
    throw Failure(softgpu::Fault::illegal_instruction, "a rate of dropout that is none");
  check_tensor(op.from, memory, "the argument");
  check_written(op.into, memory, "the result");
  check_same_sizes(op.from, op.into, "the argument");
  const std::int64_t bytes = gpupool::operations::bytes_of_mask(op.into.elements());
  memory.check(op.mask, static_cast<std::uint64_t>(bytes), 1, "the mask");
}

}  // namespace

void run(const Dropout& op, const Parts& parts, const Memory& memory) {
  if (op.what > Dropping::backward) throw Failure(softgpu::Fault::illegal_instruction, "no such dropout");
  if (op.what == Dropping::seed) {
    const gpupool::operations::DropoutStates made{op.seed, 0, 0};
    std::memcpy(memory.at<std::byte>(op.states, sizeof made, "the states of dropout"), &made, sizeof made);
    return;
  }
  check(op, memory);
  // Nothing is asked of the states where nothing is left out.
  const bool draws = op.what == Dropping::forward && op.rate > 0;
  if (draws && op.states == 0) throw Failure(softgpu::Fault::illegal_address, "no states of dropout");
  DropoutSource source(draws ? op.states : 0, op.rate, memory);
  DropoutWalk walk;
  for (int i = 0; i < op.into.dims; ++i) walk.add(op.into.sizes[i], {op.from.strides[i], op.into.strides[i]});
  walk.merge();
  std::vector<double> values;
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * Dropout::elements_of_a_part;
    const std::int64_t to = std::min(from + Dropout::elements_of_a_part, op.into.elements());
    std::uint8_t* const mask = reinterpret_cast<std::uint8_t*>(op.mask) + from / 8;
    if (op.what == Dropping::forward) {
      draw(source, from, to, mask);
      source.end_part(op.parts(), static_cast<std::uint64_t>(op.into.elements()));
    }
    walk.each(from, to, [&](const auto& at, const auto& strides, std::int64_t count, std::int64_t index) {
      values.resize(static_cast<std::size_t>(count));
      read_row(op.from, at[dropout_from], strides[dropout_from], count, values.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const bool kept = (mask[(index + i - from) / 8] >> ((index + i) % 8) & 1) != 0;
        double& value = values[static_cast<std::size_t>(i)];
        value = kept ? value / (1 - op.rate) : 0;
      }
      write_row(op.into, at[dropout_into], strides[dropout_into], count, values.data());
    });
  });
}

}  // namespace softgpu::libraries
