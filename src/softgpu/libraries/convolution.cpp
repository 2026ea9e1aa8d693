// Convolutions as products of matrices. A part is a block of what is computed: what it reads is gathered
// block by block, never for the whole convolution, and multiplied with the filters. The gradient of the input
// is gathered, too: its positions of one residue by the stride are an ordinary convolution of the gradient of
// the output.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "libraries/operations/convolution.h"
#include "softgpu/libraries/convolution_columns.h"
#include "softgpu/libraries/convolution_geometry.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"
#include "softgpu/libraries/view.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::ConvolutionBlocks;

[[noreturn]] void wrong_convolution(const char* why) {
  throw Failure(softgpu::Fault::illegal_instruction, std::string("a convolution: ") + why);
}

/// Everything that the whole operation reads and writes, and that its sizes fit each other.
void check_convolution(const Convolution& op, const Memory& memory) {
  check_tensor(op.input, memory, "the input");
  check_tensor(op.filter, memory, "the filter");
  check_tensor(op.output, memory, "the output");
  if (!op.sound()) wrong_convolution("shapes do not fit, or a number is out of range");
  check_written(op.target(), memory, "what is computed");
  // A part gathers its positions' terms and packs its filters; it has at least 64 positions.
  const ConvolutionBlocks blocks = op.blocks();
  const std::int64_t terms = blocks.inner * blocks.taps;
  check_room(64 * (terms + blocks.rows), "what a convolution gathers");
  check_room(blocks.block_rows * terms, "the filters of a convolution");
  if (op.added.address != 0) {
    check_tensor(op.added, memory, "what is added");
    check_same_sizes(op.added, op.target(), "what is added");
  }
  if (op.bias.address != 0) {
    check_tensor(op.bias, memory, "the bias");
    if (op.bias.dims < 2 || op.bias.elements() != op.bias.sizes[1] ||
        op.bias.sizes[1] != op.target().sizes[1])
      wrong_convolution("the bias has another number of channels");
  }
}

template <class N>
constexpr Element element_of = std::is_same_v<N, float> ? Element::f32 : Element::f64;

/// Which filters a thread has packed. Its next part is most often one of other positions and of the same
/// filters.
struct PackedFilters {
  std::uint64_t launch = 0;  // 0: none
  std::int64_t group = 0, first_row = 0, phase = 0;
  bool operator==(const PackedFilters&) const = default;
};

/// Memory that a thread keeps for its next part.
template <class N>
struct ConvolutionRooms {
  std::vector<Run> runs;
  Columns<N> columns;
  PackedFilters packed;
  std::vector<N> filters, sums, gradients, added;
};

template <class N>
class Convolved {
 public:
  Convolved(const Convolution& op, std::uint64_t launch, ConvolutionRooms<N>& rooms)
      : op_(op),
        launch_(launch),
        target_(op.target()),
        blocks_(op.blocks()),
        forward_(op.direction == ConvolutionDirection::forward),
        source_(op.direction == ConvolutionDirection::backward_data ? op.output : op.input),
        runs_(rooms.runs),
        columns_(rooms.columns),
        packed_(rooms.packed),
        filters_(rooms.filters),
        sums_(rooms.sums),
        gradients_(rooms.gradients),
        added_(rooms.added) {}

  void part(std::uint64_t index) {
    auto rest = static_cast<std::int64_t>(index);
    const auto next = [&](std::int64_t count) {
      const std::int64_t digit = rest % count;
      rest /= count;
      return digit;
    };
    const std::int64_t column = next(blocks_.parts_columns), row = next(blocks_.parts_rows),
                       phase = next(blocks_.phases);
    group_ = rest;
    first_row_ = row * blocks_.block_rows;
    rows_ = std::min(blocks_.block_rows, blocks_.rows - first_row_);
    phase_ = phase;
    axes_ = axes_of(op_, phase);
    if (op_.direction == ConvolutionDirection::backward_filter) {
      filter_block(column);
    } else {
      positions_block(column);
    }
  }

 private:
  /// Results at a block's positions, or gradients of the input there.
  void positions_block(std::int64_t column) {
    const std::int64_t of_image = axes_.positions();
    std::int64_t from = column * blocks_.block_columns, end = blocks_.images * of_image;
    if (blocks_.parts_of_image != 0) {
      const std::int64_t image = column / blocks_.parts_of_image;
      from = image * of_image + column % blocks_.parts_of_image * blocks_.block_columns;
      end = (image + 1) * of_image;
    }
    const std::int64_t positions = std::min(blocks_.block_columns, end - from);
    if (positions <= 0) return;  // phases differ by a position
    runs_of(axes_, from, from + positions, runs_);
    const std::int64_t taps = axes_.taps(), terms = blocks_.inner * taps;
    const std::int64_t first = group_ * blocks_.rows + first_row_;  // channel of the target
    View<N> into{reinterpret_cast<N*>(target_.address) + offset_of(runs_.front(), axes_, target_) +
                     first * target_.strides[1],
                 distance_of(axes_, target_, runs_.front().image != runs_.back().image), target_.strides[1]};
    const bool direct = stores_directly() && into.row != 0 && into.by_any(positions, rows_);
    if (!direct) {
      sums_.resize(static_cast<std::size_t>(positions * rows_));
      into = {sums_.data(), 1, positions};
    }
    if (terms == 0) {  // no tap reads anything at these positions
      sums_.assign(static_cast<std::size_t>(positions * rows_), N(0));
      into = {sums_.data(), 1, positions};
    } else {
      const View<const N> read =
          columns_.gather({source_, group_ * blocks_.inner, blocks_.inner}, axes_, runs_, positions);
      multiply<N>(positions, rows_, terms, direct ? N(op_.alpha) : N(1), read, filters(terms),
                  direct ? beta() : N(0), into);
      if (direct) return;
    }
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (const Run& run : runs_) {
        finish(
            sums_.data() + row * positions + run.at, first + row, target_,
            [&](const Tensor& tensor) {
              return std::pair{offset_of(run, axes_, tensor) + (first + row) * tensor.strides[1],
                               axes_.of[2].step * tensor.strides[4]};
            },
            run.count);
      }
    }
  }

  /// Whether the sum of the product is all that is stored.
  [[nodiscard]] bool stores_directly() const {
    const bool in_place = op_.added.address == 0 || op_.beta == 0 ||
                          (op_.added.address == target_.address && op_.added.type == target_.type &&
                           std::equal(op_.added.strides, op_.added.strides + target_.dims, target_.strides));
    return target_.type == element_of<N> && in_place && op_.bias.address == 0 &&
           op_.activation.activation == gpupool::operations::Activation::identity;
  }
  [[nodiscard]] N beta() const { return op_.added.address == 0 ? N(0) : static_cast<N>(op_.beta); }

  /// alpha, what is added, the bias and the activation. `place`: offset and stride in a tensor of the
  /// target's shape.
  template <class F>
  void finish(N* values, std::int64_t channel, const Tensor& target, F place, std::int64_t count) {
    const auto alpha = static_cast<N>(op_.alpha);
    for (std::int64_t i = 0; i < count; ++i) values[i] *= alpha;
    if (beta() != N(0)) {
      const auto [offset, stride] = place(op_.added);
      added_.resize(static_cast<std::size_t>(count));
      read_row(op_.added, offset, stride, count, added_.data());
      for (std::int64_t i = 0; i < count; ++i) values[i] += beta() * added_[static_cast<std::size_t>(i)];
    }
    if (op_.bias.address != 0) {
      N bias{};
      read_row(op_.bias, channel * op_.bias.strides[1], 1, 1, &bias);
      for (std::int64_t i = 0; i < count; ++i) values[i] += bias;
    }
    activate(op_.activation, count, values);
    const auto [offset, stride] = place(target);
    write_row(target, offset, stride, count, values);
  }

  /// Where a filter's element lies by a row of the product (a channel of the target) and the channel that is
  /// summed.
  [[nodiscard]] std::int64_t row_distance() const { return op_.filter.strides[forward_ ? 0 : 1]; }
  [[nodiscard]] std::int64_t inner_distance() const { return op_.filter.strides[forward_ ? 1 : 0]; }

  /// `terms` × rows, in the order of the gathered columns.
  View<const N> filters(std::int64_t terms) {
    const Tensor& filter = op_.filter;
    const std::int64_t per_group = filter.sizes[0] / op_.groups * filter.strides[0];
    const std::int64_t start = group_ * per_group + first_row_ * row_distance();
    const bool within = Columns<N>::channels_within(source_);
    const std::int64_t taps = axes_.taps();
    if (filter.type == element_of<N> && lies_in_order(within, taps)) {
      const auto* const data = reinterpret_cast<const N*>(filter.address) + start;
      const View<const N> view{data, taps == 1 ? inner_distance() : 1, row_distance()};
      if (view.by_any(terms, rows_)) return view;
    }
    const PackedFilters wanted{launch_, group_, first_row_, phase_};
    if (wanted == packed_) return {filters_.data(), 1, terms};
    packed_ = {};  // until all of it is there
    filters_.resize(static_cast<std::size_t>(terms * rows_));
    with_type(filter.type, [&](auto type) {
      using T = decltype(type);
      const auto* const from = reinterpret_cast<const T*>(filter.address) + start;
      const std::int64_t row_step = terms, inner_step = within ? 1 : taps,
                         tap_step = within ? blocks_.inner : 1;
      const auto pack = [&](std::int64_t row, std::int64_t inner) {
        const T* const at = from + row * row_distance() + inner * inner_distance();
        N* into = filters_.data() + row * row_step + inner * inner_step;
        for (const Axis::Tap& d : axes_.of[0].taps) {
          for (const Axis::Tap& h : axes_.of[1].taps) {
            for (const Axis::Tap& w : axes_.of[2].taps) {
              *into = to_number<N>(at[d.index * filter.strides[2] + h.index * filter.strides[3] +
                                      w.index * filter.strides[4]]);
              into += tap_step;
            }
          }
        }
      };
      // In the order in which they lie.
      if (row_distance() >= inner_distance()) {
        for (std::int64_t row = 0; row < rows_; ++row)
          for (std::int64_t inner = 0; inner < blocks_.inner; ++inner) pack(row, inner);
      } else {
        for (std::int64_t inner = 0; inner < blocks_.inner; ++inner)
          for (std::int64_t row = 0; row < rows_; ++row) pack(row, inner);
      }
    });
    packed_ = wanted;
    return {filters_.data(), 1, terms};
  }

  /// Whether the terms of one row lie side by side, as the gathered columns do.
  [[nodiscard]] bool lies_in_order(bool within, std::int64_t taps) const {
    if (taps != blocks_.taps || (op_.flipped && taps > 1)) return false;
    if (taps == 1) return true;
    std::int64_t next = 1;
    if (within) {
      if (inner_distance() != 1 && blocks_.inner != 1) return false;
      next = blocks_.inner;
    }
    for (int d = 4; d >= 2; --d) {
      if (op_.filter.sizes[d] != 1 && op_.filter.strides[d] != next) return false;
      next *= op_.filter.sizes[d];
    }
    return within || blocks_.inner == 1 || inner_distance() == next;
  }

  /// The gradient of some filters' elements of some channels: the sum over all positions, block after block.
  void filter_block(std::int64_t column) {
    const std::int64_t first = column * blocks_.block_columns,
                       count = std::min(blocks_.block_columns, blocks_.inner - first), taps = axes_.taps();
    const std::int64_t terms = count * taps, of_image = axes_.positions(), all = of_image * blocks_.images;
    sums_.assign(static_cast<std::size_t>(rows_ * terms), N(0));
    const View<N> sums{sums_.data(), terms, 1};
    constexpr std::int64_t elements_at_a_time = 1 << 18, least = 64, most = 4096, small_image = 256;
    const std::int64_t block = std::clamp(elements_at_a_time / (terms + rows_), least, most);
    for (std::int64_t from = 0; from < all;) {
      std::int64_t to = std::min(from + block, all);
      if (of_image >= small_image) to = std::min(to, (from / of_image + 1) * of_image);
      runs_of(axes_, from, to, runs_);
      const View<const N> gradient = gradients(to - from);
      const View<const N> read =
          columns_.gather({source_, group_ * blocks_.inner + first, count}, axes_, runs_, to - from);
      multiply<N>(rows_, terms, to - from, N(1), gradient.turned(), read, N(1), sums);
      from = to;
    }
    const bool within = Columns<N>::channels_within(source_);
    const std::int64_t filter = group_ * blocks_.rows + first_row_;
    std::vector<N> row(static_cast<std::size_t>(axes_.of[2].taps.size()));
    for (std::int64_t k = 0; k < rows_; ++k) {
      for (std::int64_t c = 0; c < count; ++c) {
        std::int64_t tap = 0;
        for (const Axis::Tap& d : axes_.of[0].taps) {
          for (const Axis::Tap& h : axes_.of[1].taps) {
            for (N& value : row) {
              value =
                  sums_[static_cast<std::size_t>(k * terms + (within ? tap * count + c : c * taps + tap))];
              ++tap;
            }
            if (op_.flipped) std::reverse(row.begin(), row.end());
            finish(
                row.data(), 0, target_,
                [&](const Tensor& tensor) {
                  return std::pair{(filter + k) * tensor.strides[0] + (first + c) * tensor.strides[1] +
                                       d.index * tensor.strides[2] + h.index * tensor.strides[3],
                                   tensor.strides[4]};
                },
                static_cast<std::int64_t>(row.size()));
          }
        }
      }
    }
  }

  /// Gradients of the output at the runs' positions: positions × rows.
  View<const N> gradients(std::int64_t positions) {
    const Tensor& output = op_.output;
    const std::int64_t first = group_ * blocks_.rows + first_row_;
    const std::int64_t distance = distance_of(axes_, output, runs_.front().image != runs_.back().image);
    if (output.type == element_of<N> && distance != 0) {
      const View<const N> view{reinterpret_cast<const N*>(output.address) +
                                   offset_of(runs_.front(), axes_, output) + first * output.strides[1],
                               distance, output.strides[1]};
      if (view.by_any(positions, rows_)) return view;
    }
    gradients_.resize(static_cast<std::size_t>(positions * rows_));
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (const Run& run : runs_)
        read_row(output, offset_of(run, axes_, output) + (first + row) * output.strides[1], output.strides[4],
                 run.count, gradients_.data() + row * positions + run.at);
    }
    return {gradients_.data(), 1, positions};
  }

  const Convolution& op_;
  const std::uint64_t launch_;
  const Tensor& target_;
  const ConvolutionBlocks blocks_;
  const bool forward_;
  const Tensor& source_;
  std::int64_t group_ = 0, first_row_ = 0, rows_ = 0, phase_ = 0;
  Axes axes_;
  std::vector<Run>& runs_;
  Columns<N>& columns_;
  PackedFilters& packed_;
  std::vector<N>&filters_, &sums_, &gradients_, &added_;
};

template <class N>
void convolve(const Convolution& op, const Parts& parts, const Memory& memory) {
  static thread_local ConvolutionRooms<N> rooms;
  Convolved<N> convolved(op, memory.launch(), rooms);
  parts.each(op.parts(), [&](std::uint64_t part) { convolved.part(part); });
}

}  // namespace

void run(const Convolution& op, const Parts& parts, const Memory& memory) {
  check_convolution(op, memory);
  if (op.input.type == Element::f64) return convolve<double>(op, parts, memory);
  return convolve<float>(op, parts, memory);
}

}  // namespace softgpu::libraries
