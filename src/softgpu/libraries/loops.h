// Walks over several tensors at once, in the order in which one of them lies in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "libraries/operations/tensor.h"

namespace softgpu::libraries {

/// Of tensors that are not there, or not as large as others, strides may be any numbers: nothing is done with
/// what comes out.
constexpr std::int64_t times(std::int64_t one, std::int64_t other) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(one) * static_cast<std::uint64_t>(other));
}
constexpr std::int64_t plus(std::int64_t one, std::int64_t other) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(one) + static_cast<std::uint64_t>(other));
}

/// A nest of loops over so many tensors: the last axis is the innermost one.
template <std::size_t tensors>
struct Loops {
  using Offsets = std::array<std::int64_t, tensors>;
  struct Axis {
    std::int64_t size;
    Offsets strides;
  };
  std::vector<Axis> axes;

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (const Axis& axis : axes) count *= axis.size;
    return count;
  }

  /// Adds an axis, unless it has size 1.
  void add(std::int64_t size, const Offsets& strides) {
    if (size != 1) axes.push_back({size, strides});
  }

  /// The axis with the shortest steps of tensor `leader` becomes the innermost one, and axes that continue
  /// each other in every tensor become one. Only where the order of the elements has no meaning.
  void arrange(std::size_t leader) {
    std::stable_sort(axes.begin(), axes.end(), [&](const Axis& one, const Axis& other) {
      return one.strides[leader] > other.strides[leader];
    });
    merge();
  }
  void merge() {
    for (std::size_t i = axes.size(); i-- > 1;) {
      Axis &outer = axes[i - 1], &inner = axes[i];
      bool continues = true;
      for (std::size_t t = 0; t < tensors; ++t)
        continues &= outer.strides[t] == times(inner.strides[t], inner.size);
      if (!continues) continue;
      inner.size *= outer.size;
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
  }

  /// f(offsets, strides, count, index) for the elements [from, to) in pieces along the innermost axis.
  template <class F>
  void each(std::int64_t from, std::int64_t to, F f) const {
    const Axis last = axes.empty() ? Axis{1, {}} : axes.back();
    while (from < to) {
      const std::int64_t at = from % last.size, count = std::min(last.size - at, to - from);
      Offsets offsets{};
      std::int64_t rest = from / last.size;
      for (std::size_t t = 0; t < tensors; ++t) offsets[t] = times(at, last.strides[t]);
      for (std::size_t i = axes.empty() ? 0 : axes.size() - 1; i-- > 0;) {
        const std::int64_t digit = rest % axes[i].size;
        rest /= axes[i].size;
        for (std::size_t t = 0; t < tensors; ++t)
          offsets[t] = plus(offsets[t], times(digit, axes[i].strides[t]));
      }
      f(offsets, last.strides, count, from);
      from += count;
    }
  }
  /// Where element `index` lies.
  [[nodiscard]] Offsets at(std::int64_t index) const {
    Offsets found{};
    each(index, index + 1,
         [&](const Offsets& offsets, const Offsets&, std::int64_t, std::int64_t) { found = offsets; });
    return found;
  }
};

/// The step of a tensor on an axis where it may be repeated.
inline std::int64_t repeated_stride(const gpupool::operations::Tensor& tensor, int axis) {
  return tensor.sizes[axis] == 1 ? 0 : tensor.strides[axis];
}

}  // namespace softgpu::libraries
