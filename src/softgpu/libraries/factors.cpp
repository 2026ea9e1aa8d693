// Factorisations of batches. A part is one matrix.
#include "libraries/operations/factors.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::all_diagonals;
using gpupool::operations::Factoring;
using gpupool::operations::Factors;

template <class N>
auto size(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return std::abs(value);
  } else {
    return std::abs(value.real()) + std::abs(value.imag());  // as LAPACK compares
  }
}

/// A matrix in column order.
template <class N>
struct Columns {
  N* data;
  std::int64_t leading;

  N* column(std::int64_t j) const { return data + j * leading; }
  N& at(std::int64_t i, std::int64_t j) const { return data[i + j * leading]; }
  [[nodiscard]] Columns from(std::int64_t i, std::int64_t j) const {
    return {data + i + j * leading, leading};
  }
};

enum class Triangle : std::uint8_t { unit_lower, upper };

/// X = op(L or U)⁻¹ · X.
template <class N>
void solve(Triangle triangle, const Columns<N>& a, std::int64_t order, std::uint8_t transpose,
           const Columns<N>& x, std::int64_t columns) {
  View view = room_view(a.data, a.leading, element_of<N>);
  view.unit = triangle == Triangle::unit_lower;
  (triangle == Triangle::unit_lower ? view.above : view.below) = 0;
  if (transpose != 0) view = transposed(view, transpose == 2);
  solve_in_place(view, 0, order, columns, x.data, x.leading);
}

template <class N>
void exchange(const Columns<N>& a, std::int64_t one, std::int64_t other, std::int64_t columns) {
  if (one == other) return;
  for (std::int64_t j = 0; j < columns; ++j) std::swap(a.at(one, j), a.at(other, j));
}

/// A = L · U, by panels of columns; `pivots` from 1 on, or null. The first column without pivot, from 1 on,
/// or 0.
template <class N>
std::int32_t factor(const Columns<N>& a, std::int64_t n, std::int32_t* pivots) {
  constexpr std::int64_t width = 32;
  std::int32_t info = 0;
  for (std::int64_t begin = 0; begin < n; begin += width) {
    const std::int64_t end = std::min(n, begin + width);
    for (std::int64_t j = begin; j < end; ++j) {
      N* const column = a.column(j);
      if (pivots != nullptr) {
        std::int64_t best = j;
        for (std::int64_t i = j + 1; i < n; ++i) {
          if (size(column[i]) > size(column[best])) best = i;
        }
        pivots[j] = static_cast<std::int32_t>(best + 1);
        exchange(a, j, best, n);
      }
      if (column[j] == N(0)) {
        if (info == 0) info = static_cast<std::int32_t>(j + 1);
        continue;
      }
      for (std::int64_t i = j + 1; i < n; ++i) column[i] /= column[j];
      for (std::int64_t c = j + 1; c < end; ++c) {
        const N factor = a.at(j, c);
        for (std::int64_t i = j + 1; i < n; ++i) a.at(i, c) -= times(column[i], factor);
      }
    }
    if (end == n) break;
    solve(Triangle::unit_lower, a.from(begin, begin), end - begin, 0, a.from(begin, end), n - end);
    gemm(Trans::none, Trans::none, n - end, n - end, end - begin, N(-1), a.column(begin) + end, a.leading,
         a.column(end) + begin, a.leading, N(1), a.column(end) + end, a.leading);
  }
  return info;
}

template <class N>
void identity(const Columns<N>& a, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    std::fill_n(a.column(j), n, N(0));
    a.at(j, j) = N(1);
  }
}

/// Exchanges rows of B as A's were, or back.
template <class N>
void exchange_all(const Columns<N>& b, std::int64_t n, std::int64_t columns, const std::int32_t* pivots,
                  bool back) {
  for (std::int64_t count = 0; pivots != nullptr && count < n; ++count) {
    const std::int64_t i = back ? n - 1 - count : count;
    const std::int32_t pivot = pivots[i];  // read once: others may write there
    if (pivot < 1 || pivot > n) wrong("a pivot that is no row");
    exchange(b, i, pivot - 1, columns);
  }
}

template <class N>
void solve_factored(const Columns<N>& a, std::int64_t n, const std::int32_t* pivots, std::uint8_t transpose,
                    const Columns<N>& b, std::int64_t columns) {
  if (transpose == 0) exchange_all(b, n, columns, pivots, false);
  solve(transpose == 0 ? Triangle::unit_lower : Triangle::upper, a, n, transpose, b, columns);
  solve(transpose == 0 ? Triangle::upper : Triangle::unit_lower, a, n, transpose, b, columns);
  if (transpose != 0) exchange_all(b, n, columns, pivots, true);
}

template <class N>
std::int32_t zero_on_diagonal(const Columns<N>& a, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    if (a.at(j, j) == N(0)) return static_cast<std::int32_t>(j + 1);
  }
  return 0;
}

/// C's `columns` columns, (I - tau · v · vᴴ) times them, or the conjugated tau; v[0] is 1 and not stored.
template <class N>
void reflect(const N* v, std::int64_t rows, N tau, const Columns<N>& c, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; ++j) {
    N* const column = c.column(j);
    N product = column[0];
    for (std::int64_t i = 1; i < rows; ++i) product += times(conjugate(v[i]), column[i]);
    product = times(tau, product);
    column[0] -= product;
    for (std::int64_t i = 1; i < rows; ++i) column[i] -= times(v[i], product);
  }
}

/// A = Q · R by Householder's reflectors, as LAPACK stores them; `other` is changed with A, as Qᴴ · other.
template <class N>
void householder(const Columns<N>& a, std::int64_t m, std::int64_t n, N* taus, const Columns<N>& other,
                 std::int64_t others) {
  using Real = decltype(std::abs(N{}));
  for (std::int64_t j = 0; j < std::min(m, n); ++j) {
    N* const v = &a.at(j, j);
    const std::int64_t rows = m - j;
    Real most = 0;
    for (std::int64_t i = 1; i < rows; ++i) most = std::max(most, size(v[i]));
    const N alpha = v[0];
    taus[j] = N(0);
    if (most == 0 && alpha == real_only(alpha)) continue;
    // Scaled, so that no square overflows.
    const Real scale = std::max(most, size(alpha));
    Real squares = std::norm(std::complex<Real>(alpha / scale));
    for (std::int64_t i = 1; i < rows; ++i) squares += std::norm(std::complex<Real>(v[i] / scale));
    const Real real = std::real(alpha);
    const Real beta = -std::copysign(scale * std::sqrt(squares), real);
    taus[j] = (N(beta) - alpha) / N(beta);
    const N pivot = alpha - N(beta);
    for (std::int64_t i = 1; i < rows; ++i) v[i] /= pivot;
    reflect(v, rows, conjugate(taus[j]), a.from(j, j + 1), n - j - 1);
    reflect(v, rows, conjugate(taus[j]), other.from(j, 0), others);
    v[0] = N(beta);
  }
}

template <class N>
class Batch {
 public:
  Batch(const Factors& op, const Memory& memory) : op_(op), memory_(memory) {}

  void run(std::int64_t index) const {
    const Columns<N> a = matrix(op_.a, op_.lda, op_.m, op_.n, index, "A");
    std::int32_t* const pivots =
        op_.pivots == 0 ? nullptr
                        : memory_.at<std::int32_t>(op_.pivots + static_cast<std::uint64_t>(index * op_.n) * 4,
                                                   static_cast<std::uint64_t>(op_.n), "the pivots");
    std::int32_t* const info =
        op_.info == 0 ? nullptr
                      : memory_.at<std::int32_t>(op_.info + static_cast<std::uint64_t>(index) * 4, 1, "info");
    const std::int32_t result = done(a, pivots, index);
    if (info != nullptr) *info = result;
  }

 private:
  Columns<N> matrix(std::uint64_t list, std::int64_t leading, std::int64_t rows, std::int64_t columns,
                    std::int64_t index, const char* what) const {
    View view;
    view.address = list;
    view.column = leading;
    view.pointers = true;
    view.type = op_.type;
    if (leading < rows) wrong(std::string(what) + ": rows overlap");
    return {reinterpret_cast<N*>(located(view, rows, columns, index, memory_, what).address), leading};
  }

  std::int32_t done(const Columns<N>& a, std::int32_t* pivots, std::int64_t index) const {
    const std::int64_t n = op_.n;
    switch (op_.what) {
      case Factoring::lu:
        return factor(a, n, pivots);
      case Factoring::lu_solve:
        solve_factored(a, n, pivots, op_.transpose, matrix(op_.b, op_.ldb, n, op_.columns, index, "B"),
                       op_.columns);
        return 0;
      case Factoring::lu_inverse:
        return inverted(a, pivots, zero_on_diagonal(a, n), index);
      case Factoring::inverse: {
        // A stays as it is.
        std::vector<N> copy(static_cast<std::size_t>(n * n));
        for (std::int64_t j = 0; j < n; ++j) std::copy_n(a.column(j), n, copy.data() + j * n);
        std::vector<std::int32_t> own(static_cast<std::size_t>(n));
        const Columns<N> factored{copy.data(), n};
        const std::int32_t info = factor(factored, n, own.data());
        return inverted(factored, own.data(), info, index);
      }
      case Factoring::qr: {
        const Columns<N> taus = matrix(op_.b, std::max<std::int64_t>(1, std::min(op_.m, n)),
                                       std::min(op_.m, n), 1, index, "the factors of reflectors");
        householder(a, op_.m, n, taus.data, {nullptr, 0}, 0);
        return 0;
      }
      case Factoring::least_squares: {
        const Columns<N> b = matrix(op_.b, op_.ldb, op_.m, op_.columns, index, "B");
        std::vector<N> taus(static_cast<std::size_t>(n));
        householder(a, op_.m, n, taus.data(), b, op_.columns);
        if (const std::int32_t info = zero_on_diagonal(a, n); info != 0) return info;
        solve(Triangle::upper, a, n, 0, b, op_.columns);
        return 0;
      }
    }
    wrong("no such factorisation");
  }

  std::int32_t inverted(const Columns<N>& a, const std::int32_t* pivots, std::int32_t info,
                        std::int64_t index) const {
    if (info != 0) return info;
    const Columns<N> b = matrix(op_.b, op_.ldb, op_.n, op_.n, index, "B");
    identity(b, op_.n);
    solve_factored(a, op_.n, pivots, 0, b, op_.n);
    return 0;
  }

  const Factors& op_;
  const Memory& memory_;
};

}  // namespace

void run(const Factors& op, const Parts& parts, const Memory& memory) {
  const bool fits = op.m >= 0 && op.n >= 0 && op.columns >= 0 && op.batch >= 0 && op.transpose <= 2 &&
                    op.what <= Factoring::least_squares && op.n <= INT32_MAX && op.batch <= INT32_MAX;
  if (!fits || (op.what < Factoring::qr && op.m != op.n) ||
      (op.what == Factoring::least_squares && op.m < op.n))
    wrong("no such factorisation");
  if (op.batch == 0) return;
  with_number(op.type, [&](auto type) {
    const Batch<decltype(type)> batch(op, memory);
    parts.each(op.parts(), [&](std::uint64_t part) { batch.run(static_cast<std::int64_t>(part)); });
  });
}

}  // namespace softgpu::libraries
