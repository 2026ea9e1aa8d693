// What a block of a convolution's results reads, gathered to a matrix: a row for each position, a column for
// each channel and tap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "softgpu/libraries/convolution_geometry.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/view.h"

namespace softgpu::libraries {

/// Channels [first, first + count) of the source, at the positions of a block.
struct Source {
  const Tensor& tensor;
  std::int64_t first, count;
};

template <class N>
class Columns {
 public:
  /// Whether a column's index counts taps first and channels within them, as suits a source whose channels
  /// lie side by side; else channels first.
  static bool channels_within(const Tensor& source) {
    return source.strides[1] == 1 && source.strides[4] != 1 && source.sizes[1] > 1;
  }

  /// `positions` × (channels · taps). It lies in this object, or is the source itself where that is such a
  /// matrix; [from, to) are the positions of the runs.
  View<const N> gather(const Source& source, const Axes& axes, const std::vector<Run>& runs,
                       std::int64_t positions) {
    if (as_it_is(source, axes, runs)) return view_;
    const std::int64_t columns = source.count * axes.taps();
    room_.resize(static_cast<std::size_t>(positions * columns));
    const bool within = channels_within(source.tensor);
    with_type(source.tensor.type, [&](auto type) {
      using T = decltype(type);
      if (within) {
        gather_channels<T>(source, axes, runs, columns);
      } else {
        gather_rows<T>(source, axes, runs, positions);
      }
    });
    return within ? View<const N>{room_.data(), columns, 1} : View<const N>{room_.data(), 1, positions};
  }

 private:
  /// One tap that reads at the position of its result.
  bool as_it_is(const Source& source, const Axes& axes, const std::vector<Run>& runs) {
    const bool plain =
        std::is_same_v<N, float> ? source.tensor.type == Element::f32 : source.tensor.type == Element::f64;
    if (!plain || axes.taps() != 1) return false;
    for (const Axis& axis : axes.of) {
      if (axis.read_step != 1 || axis.step != 1 || axis.first != 0 || axis.taps[0].offset != 0 ||
          axis.count != axis.source)
        return false;
    }
    const std::int64_t distance = distance_of(axes, source.tensor, runs.front().image != runs.back().image);
    if (distance == 0) return false;
    const std::int64_t positions = runs.back().at + runs.back().count;
    const auto* const data = reinterpret_cast<const N*>(source.tensor.address);
    view_ = {data + offset_of(runs.front(), axes, source.tensor) + source.first * source.tensor.strides[1],
             distance, source.tensor.strides[1]};
    return view_.by_any(positions, source.count);
  }

  /// What a run reads by one tap: the source's first element, and which results read within the source.
  struct Reach {
    std::int64_t offset, low, high;  // none: low == high
  };
  static Reach reach_of(const Run& run, const Axes& axes, const Tensor& source, const Axis::Tap& d,
                        const Axis::Tap& h, const Axis::Tap& w) {
    const std::int64_t at_d = run.d * axes.of[0].read_step + d.offset,
                       at_h = run.h * axes.of[1].read_step + h.offset;
    if (at_d < 0 || at_d >= axes.of[0].source || at_h < 0 || at_h >= axes.of[1].source) return {0, 0, 0};
    const std::int64_t step = axes.of[2].read_step, first = run.w * step + w.offset;
    const std::int64_t low = first >= 0 ? 0 : (-first + step - 1) / step;
    const std::int64_t left = axes.of[2].source - first;
    const std::int64_t high = left <= 0 ? 0 : (left + step - 1) / step;
    return {run.image * source.strides[0] + at_d * source.strides[2] + at_h * source.strides[3] +
                first * source.strides[4],
            std::min(low, run.count), std::max(std::min(high, run.count), std::min(low, run.count))};
  }

  template <class F>
  static void each_tap(const Axes& axes, F f) {
    for (const Axis::Tap& d : axes.of[0].taps) {
      for (const Axis::Tap& h : axes.of[1].taps) {
        for (const Axis::Tap& w : axes.of[2].taps) f(d, h, w);
      }
    }
  }

  template <class T>
  static void copy(const T* from, std::int64_t stride, std::int64_t count, N* into) {
    if constexpr (std::is_same_v<T, N>) {
      if (stride == 1) {
        std::copy_n(from, count, into);
        return;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) into[i] = to_number<N>(from[i * stride]);
  }

  /// Each column in one piece.
  template <class T>
  void gather_rows(const Source& source, const Axes& axes, const std::vector<Run>& runs,
                   std::int64_t positions) {
    const auto* const base = reinterpret_cast<const T*>(source.tensor.address);
    const std::int64_t step = axes.of[2].read_step * source.tensor.strides[4];
    N* column = room_.data();
    for (std::int64_t channel = source.first; channel < source.first + source.count; ++channel) {
      const T* const of_channel = base + channel * source.tensor.strides[1];
      each_tap(axes, [&](const Axis::Tap& d, const Axis::Tap& h, const Axis::Tap& w) {
        for (const Run& run : runs) {
          const Reach reach = reach_of(run, axes, source.tensor, d, h, w);
          N* const into = column + run.at;
          std::fill_n(into, reach.low, N(0));
          if (reach.low < reach.high)
            copy(of_channel + reach.offset + reach.low * step, step, reach.high - reach.low,
                 into + reach.low);
          std::fill_n(into + reach.high, run.count - reach.high, N(0));
        }
        column += positions;
      });
    }
  }

  /// Each position in one piece.
  template <class T>
  void gather_channels(const Source& source, const Axes& axes, const std::vector<Run>& runs,
                       std::int64_t columns) {
    const auto* const base =
        reinterpret_cast<const T*>(source.tensor.address) + source.first * source.tensor.strides[1];
    const std::int64_t step = axes.of[2].read_step * source.tensor.strides[4];
    for (const Run& run : runs) {
      N* tap = room_.data() + run.at * columns;
      each_tap(axes, [&](const Axis::Tap& d, const Axis::Tap& h, const Axis::Tap& w) {
        const Reach reach = reach_of(run, axes, source.tensor, d, h, w);
        for (std::int64_t x = 0; x < run.count; ++x) {
          N* const into = tap + x * columns;
          if (x >= reach.low && x < reach.high) {
            copy(base + reach.offset + x * step, 1, source.count, into);
          } else {
            std::fill_n(into, source.count, N(0));
          }
        }
        tap += source.count;
      });
    }
  }

  std::vector<N> room_;
  View<const N> view_{};
};

}  // namespace softgpu::libraries
