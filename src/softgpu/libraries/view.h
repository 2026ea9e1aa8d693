// A matrix in memory by the distances of its rows and of its columns, and products of such.
#pragma once

#include <algorithm>
#include <cstdint>

#include "softgpu/libraries/blas.h"

namespace softgpu::libraries {

template <class N>
struct View {
  N* data;
  std::int64_t row, column;  // distances, in elements

  [[nodiscard]] View turned() const { return {data, column, row}; }
  /// Whether `rows` × `columns` of it lie in column order.
  [[nodiscard]] bool by_column(std::int64_t rows, std::int64_t columns) const {
    return (row == 1 || rows == 1) && (columns == 1 || column >= rows);
  }
  [[nodiscard]] bool by_any(std::int64_t rows, std::int64_t columns) const {
    return by_column(rows, columns) || turned().by_column(columns, rows);
  }
};

/// C = alpha · A · B + beta · C, m × n with k terms. Each has one order or the other.
template <class N>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, N alpha, View<const N> a, View<const N> b,
              N beta, View<N> c) {
  if (!c.by_column(m, n)) {
    std::swap(m, n);
    std::swap(a, b);
    a = a.turned();
    b = b.turned();
    c = c.turned();
  }
  const auto leading = [](std::int64_t rows, std::int64_t columns, std::int64_t distance) {
    return columns == 1 ? std::max<std::int64_t>(rows, 1) : distance;
  };
  const bool plain_a = a.by_column(m, k), plain_b = b.by_column(k, n);
  gemm(plain_a ? Trans::none : Trans::transpose, plain_b ? Trans::none : Trans::transpose, m, n, k, alpha,
       a.data, plain_a ? leading(m, k, a.column) : leading(k, m, a.row), b.data,
       plain_b ? leading(k, n, b.column) : leading(n, k, b.row), beta, c.data, leading(m, n, c.column));
}

}  // namespace softgpu::libraries
