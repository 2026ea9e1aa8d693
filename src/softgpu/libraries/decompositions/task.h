// One matrix of a batch that is decomposed, or some columns of a solution: its operands, checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "libraries/operations/decomposition.h"
#include "softgpu/libraries/decompositions/lapack.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {

using gpupool::operations::Decomposing;
using gpupool::operations::Decomposition;
using gpupool::operations::Placed;
using gpupool::operations::Wanted;
using lapack::Real;

/// A matrix in column order.
template <class N>
struct Matrix {
  N* data;
  std::int64_t rows, columns, leading;

  N& at(std::int64_t i, std::int64_t j) const { return data[i + j * leading]; }
  /// Where nothing is read, the address of an empty matrix may be any number.
  N* column(std::int64_t j) const { return data + j * leading; }
};

/// One in host memory. LAPACK's longer ways keep indices beside numbers: what others could write meanwhile
/// does not lead them astray.
template <class N>
class Own {
 public:
  Own(std::int64_t rows, std::int64_t columns)
      : numbers_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)),
        matrix_{numbers_.data(), rows, columns, std::max<std::int64_t>(rows, 1)} {}
  explicit Own(const Matrix<N>& from) : Own(from.rows, from.columns) { copy(from, matrix_); }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;

  static void copy(const Matrix<N>& from, const Matrix<N>& to) {
    for (std::int64_t j = 0; j < to.columns; ++j) std::copy_n(from.column(j), to.rows, to.column(j));
  }
  const Matrix<N>* operator->() const { return &matrix_; }
  const Matrix<N>& operator*() const { return matrix_; }

 private:
  std::vector<N> numbers_;
  Matrix<N> matrix_;
};

template <class N>
class Task {
 public:
  const Decomposition& op;
  std::int64_t index, piece;
  const Memory& memory;

  template <class T = N>
  [[nodiscard]] Matrix<T> matrix(const Placed& placed, std::int64_t rows, std::int64_t columns,
                                 const char* what) const {
    if (placed.leading < std::max<std::int64_t>(rows, 1)) wrong(std::string(what) + ": rows overlap");
    return found<T>(placed, rows, columns, placed.leading, what);
  }
  template <class T = N>
  [[nodiscard]] T* vector(const Placed& placed, std::int64_t size, const char* what) const {
    return found<T>(placed, size, 1, std::max<std::int64_t>(size, 1), what).data;
  }

  /// The columns of a solution that this part has.
  [[nodiscard]] Matrix<N> solution() const {
    const std::int64_t first = std::min(piece * Decomposition::columns_of_a_part, op.columns);
    Matrix<N> all = matrix(op.b, op.n, op.columns, "B");
    all.data += first * all.leading;
    all.columns = std::min(Decomposition::columns_of_a_part, op.columns - first);
    return all;
  }

  /// What is there is checked before there is room for it: `count` may be any number.
  [[nodiscard]] std::vector<std::int64_t> read_pivots(std::int64_t count) const {
    std::vector<std::int64_t> pivots;
    with_pivots(count, [&](const auto* stored) { pivots.assign(stored, stored + count); });
    return pivots;
  }
  void write_pivots(const std::vector<std::int64_t>& pivots) const {
    with_pivots(static_cast<std::int64_t>(pivots.size()), [&](auto* stored) {
      using P = std::remove_pointer_t<decltype(stored)>;
      for (std::size_t i = 0; i < pivots.size(); ++i) stored[i] = static_cast<P>(pivots[i]);
    });
  }
  void write_info(std::int64_t info) const {
    if (op.info == 0 || piece != 0 || (op.one_info && index != 0)) return;
    *memory.at<std::int32_t>(op.info + static_cast<std::uint64_t>(index) * 4, 1, "info") =
        static_cast<std::int32_t>(info);
  }

  [[nodiscard]] char triangle() const { return op.upper ? 'U' : 'L'; }
  [[nodiscard]] char side() const { return op.right ? 'R' : 'L'; }
  /// As LAPACK wants it for products with Q, which real matrices have no conjugate of.
  [[nodiscard]] char adjoint() const { return op.transpose == 0 ? 'N' : std::is_arithmetic_v<N> ? 'T' : 'C'; }

 private:
  template <class T>
  [[nodiscard]] Matrix<T> found(const Placed& placed, std::int64_t rows, std::int64_t columns,
                                std::int64_t leading, const char* what) const {
    View view;
    view.address = placed.address;
    view.column = leading;
    view.stride = placed.stride;
    view.pointers = placed.pointers;
    view.type = element_of<T>;
    const View own = located(view, rows, columns, index, memory, what);
    return {reinterpret_cast<T*>(own.address), rows, columns, leading};
  }

  template <class F>
  void with_pivots(std::int64_t count, F f) const {
    const auto size = static_cast<std::uint64_t>(count);
    const std::uint64_t first =
        op.pivots + static_cast<std::uint64_t>(index) * size * (op.wide_pivots ? 8 : 4);
    if (op.wide_pivots) {
      f(memory.at<std::int64_t>(first, size, "the pivots"));
    } else {
      f(memory.at<std::int32_t>(first, size, "the pivots"));
    }
  }
};

template <class N>
bool is_finite(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return std::isfinite(value);
  } else {
    return std::isfinite(value.real()) && std::isfinite(value.imag());
  }
}

/// Of a matrix, or of its triangle.
template <class N, class Stored>
bool is_finite(const Matrix<N>& a, Stored stored) {
  for (std::int64_t j = 0; j < a.columns; ++j) {
    for (std::int64_t i = 0; i < a.rows; ++i) {
      if (stored(i, j) && !is_finite(a.at(i, j))) return false;
    }
  }
  return true;
}

/// Each does what it is told, and returns what LAPACK says in `info`; ends the operation where it is none.
template <class N>
std::int64_t solve_linear(const Task<N>& task);
template <class N>
std::int64_t make_orthogonal(const Task<N>& task);
template <class N>
std::int64_t find_spectrum(const Task<N>& task);

/// The four types that LAPACK knows.
#define SOFTGPU_LAPACK_TYPES(function)                              \
  template std::int64_t function(const Task<float>&);               \
  template std::int64_t function(const Task<double>&);              \
  template std::int64_t function(const Task<std::complex<float>>&); \
  template std::int64_t function(const Task<std::complex<double>>&);

}  // namespace softgpu::libraries
