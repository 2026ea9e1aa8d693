// Dropout. Random numbers are computed by their position, so each part has its own.
#include "libraries/operations/dropout.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "libraries/operations/random.h"
#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Dropout;
using gpupool::operations::DropoutStates;
using gpupool::operations::Dropping;
namespace philox = gpupool::operations::philox;

enum : std::size_t { dropout_from, dropout_into, dropout_operands };
using DropoutWalk = Loops<dropout_operands>;

/// Numbers of the sequence come in fours.
constexpr std::int64_t together = 4;
constexpr double range = 0x1p32;

std::atomic_ref<std::uint64_t> atomic(std::uint64_t& number) {
  return std::atomic_ref<std::uint64_t>(number);
}

/// Bits of the mask for elements [from, to), `from` a multiple of eight.
void draw(const Dropout& op, const DropoutStates& states, std::int64_t from, std::int64_t to,
          std::uint8_t* mask) {
  const auto left_out = static_cast<std::uint64_t>(op.rate * range);
  std::fill(mask, mask + gpupool::operations::bytes_of_mask(to - from), std::uint8_t{0});
  for (std::int64_t i = from; i < to; i += together) {
    const std::uint64_t four = states.position / together + static_cast<std::uint64_t>(i) / together;
    const philox::Block block =
        philox::block(states.seed, four % philox::sequences, four / philox::sequences);
    for (std::int64_t n = 0; n < std::min(together, to - i); ++n) {
      const bool kept = block.words[n] >= left_out;
      mask[(i - from + n) / 8] |= static_cast<std::uint8_t>((kept ? 1U : 0U) << ((i + n) % 8));
    }
  }
}

/// The last part that is done moves the states on: all have read them before.
void end_part(const Dropout& op, DropoutStates& states) {
  if (atomic(states.done).fetch_add(1, std::memory_order_acq_rel) + 1 != op.parts()) return;
  const auto used = static_cast<std::uint64_t>((op.into.elements() + together - 1) / together * together);
  states.position += used;
  atomic(states.done).store(0, std::memory_order_release);
}

void check(const Dropout& op, const Memory& memory) {
  if (!(op.rate >= 0 && op.rate <= 1))
    throw Failure(softgpu::Fault::illegal_instruction, "a rate of dropout that is none");
  check_tensor(op.from, memory, "the argument");
  check_tensor(op.into, memory, "the result");
  check_same_sizes(op.from, op.into, "the argument");
  const std::int64_t bytes = gpupool::operations::bytes_of_mask(op.into.elements());
  memory.check(op.mask, static_cast<std::uint64_t>(bytes), 1, "the mask");
}

}  // namespace

void run(const Dropout& op, const Parts& parts, const Memory& memory) {
  if (op.what > Dropping::backward) throw Failure(softgpu::Fault::illegal_instruction, "no such dropout");
  // Nothing is asked of the states where nothing is left out.
  DropoutStates* const states = op.what == Dropping::seed || (op.what == Dropping::forward && op.rate > 0)
                                    ? memory.at<DropoutStates>(op.states, 1, "the states")
                                    : nullptr;
  if (states != nullptr && op.states % alignof(DropoutStates) != 0)
    throw Failure(softgpu::Fault::misaligned_address, "the states: the address is no multiple of 8");
  if (op.what == Dropping::seed) {
    *states = {op.seed, 0, 0};
    return;
  }
  check(op, memory);
  DropoutWalk walk;
  for (int i = 0; i < op.into.dims; ++i) walk.add(op.into.sizes[i], {op.from.strides[i], op.into.strides[i]});
  walk.merge();
  std::vector<double> values;
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * Dropout::elements_of_a_part;
    const std::int64_t to = std::min(from + Dropout::elements_of_a_part, op.into.elements());
    std::uint8_t* const mask = reinterpret_cast<std::uint8_t*>(op.mask) + from / 8;
    if (op.what == Dropping::forward) {
      const DropoutStates now =
          states != nullptr ? DropoutStates{states->seed, states->position} : DropoutStates{};
      draw(op, now, from, to, mask);
      if (states != nullptr) end_part(op, *states);
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
