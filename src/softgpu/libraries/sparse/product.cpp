// Products of a sparse matrix and a dense one, and solutions with a sparse triangle.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/matrix.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::SparseProduct;
using gpupool::operations::SparseSolve;

/// Columns [j, j + count) of one batch.
struct Columns {
  std::int64_t j, count, batch;
};

Columns columns_of(std::int64_t n, std::int64_t width, std::int64_t number) {
  const std::int64_t pieces = gpupool::operations::pieces(n, width);
  const std::int64_t j = number % pieces * width;
  return {j, std::min(width, n - j), number / pieces};
}

template <class N>
void product(const SparseProduct& op, std::uint64_t part, const Memory& memory) {
  const auto parts_m = static_cast<std::uint64_t>(op.parts_m());
  const Columns at = columns_of(op.n, SparseProduct::columns, static_cast<std::int64_t>(part / parts_m));
  const SparseMatrix<N> a(op.a, at.batch, memory, "A");
  const std::int64_t m = op.a.turned ? op.a.columns : op.a.rows, k = op.a.turned ? op.a.rows : op.a.columns;
  const Dense<N> b(op.b, k, op.n, at.batch, memory, "B"), c(op.c, m, op.n, at.batch, memory, "C");
  const N alpha = number<N>(op.alpha, memory, "alpha"), beta = number<N>(op.beta, memory, "beta");
  std::vector<N> sums(static_cast<std::size_t>(at.count));
  const auto add = [&](N* to, std::int64_t term, N value) {
    for (std::int64_t j = 0; j < at.count; ++j) to[j] += times(value, b(term, at.j + j));
  };
  const auto store = [&](std::int64_t i, const N* from) {
    for (std::int64_t j = 0; j < at.count; ++j) {
      N result = times(alpha, from[j]);
      // What is not asked for may be no number.
      if (beta != N(0)) result += times(beta, c(i, at.j + j));
      c.put(i, at.j + j, result);
    }
  };
  if (op.by_rows()) {
    const std::int64_t step = op.rows_of_part() * op.a.block_rows;
    const std::int64_t begin = static_cast<std::int64_t>(part % parts_m) * step;
    for (std::int64_t i = begin; i < std::min(begin + step, m); ++i) {
      std::fill(sums.begin(), sums.end(), N(0));
      a.row(i, [&](std::int64_t j, std::int64_t value) { add(sums.data(), j, a.value(value)); });
      store(i, sums.data());
    }
    return;
  }
  sums.assign(static_cast<std::size_t>(m * at.count), N(0));
  a.all([&](std::int64_t i, std::int64_t j, std::int64_t value) {
    if (op.a.turned) std::swap(i, j);
    add(sums.data() + i * at.count, j, a.value(value));
  });
  for (std::int64_t i = 0; i < m; ++i) store(i, sums.data() + i * at.count);
}

template <class N>
class Solution {
 public:
  Solution(const SparseSolve& op, const Columns& at, const Memory& memory)
      : op_(op),
        at_(at),
        a_(op.a, at.batch, memory, "A"),
        b_(op.b, op.a.rows, op.n, at.batch, memory, "B"),
        c_(op.c, op.a.rows, op.n, at.batch, memory, "C"),
        alpha_(number<N>(op.alpha, memory, "alpha")) {
    a_.find_rows();
  }

  /// The number of the first row without a pivot, or -1.
  std::int64_t run() {
    const std::int64_t m = op_.a.rows;
    x_.resize(static_cast<std::size_t>(m * at_.count));
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < at_.count; ++j) line(i)[j] = times(alpha_, b_(i, at_.j + j));
    }
    std::int64_t zero = -1;
    const bool ascending = (op_.upper != 0) == (op_.a.turned != 0);
    for (std::int64_t step = 0; step < m; ++step) {
      const std::int64_t i = ascending ? step : m - 1 - step;
      if (!solve_row(i)) zero = zero < 0 ? i : std::min(zero, i);
    }
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < at_.count; ++j) c_.put(i, at_.j + j, line(i)[j]);
    }
    return zero;
  }

 private:
  N* line(std::int64_t i) { return x_.data() + i * at_.count; }
  bool in_triangle(std::int64_t i, std::int64_t j) const { return op_.upper ? j > i : j < i; }
  void subtract(std::int64_t from, std::int64_t of, N value) {
    for (std::int64_t j = 0; j < at_.count; ++j) line(from)[j] -= times(value, line(of)[j]);
  }

  bool solve_row(std::int64_t i) {
    N pivot(0);
    a_.row(i, [&](std::int64_t j, std::int64_t value) {
      if (j == i) {
        pivot += a_.value(value);
      } else if (!op_.a.turned && in_triangle(i, j)) {
        subtract(i, j, a_.value(value));
      }
    });
    if (!op_.unit) {
      for (std::int64_t j = 0; j < at_.count; ++j) line(i)[j] /= pivot;
    }
    if (op_.a.turned) {
      a_.row(i, [&](std::int64_t j, std::int64_t value) {
        if (in_triangle(i, j)) subtract(j, i, a_.value(value));
      });
    }
    return op_.unit || pivot != N(0);
  }

  const SparseSolve& op_;
  const Columns at_;
  SparseMatrix<N> a_;
  Dense<N> b_, c_;
  N alpha_;
  std::vector<N> x_;
};

}  // namespace

void run(const SparseProduct& op, const Parts& parts, const Memory& memory) {
  with_number(op.sum, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) { product<decltype(type)>(op, part, memory); });
  });
}

void run(const SparseSolve& op, const Parts& parts, const Memory& memory) {
  if (op.a.rows != op.a.columns || op.a.block_rows != op.a.block_columns)
    wrong("a triangle that is no square");
  // There rows are bound by what says where they begin.
  if (op.n == 0 && op.a.storage != Storage::compressed) return;
  with_number(op.sum, [&](auto type) {
    // Without columns only the pivots are looked at.
    parts.each(op.n == 0 && op.zero_pivot != 0 ? 1 : op.parts(), [&](std::uint64_t part) {
      const Columns at = op.n == 0 ? Columns{0, 0, 0}
                                   : columns_of(op.n, SparseSolve::columns, static_cast<std::int64_t>(part));
      const std::int64_t zero = Solution<decltype(type)>(op, at, memory).run();
      if (op.zero_pivot == 0 || part != 0) return;
      *memory.at<std::int32_t>(op.zero_pivot, 1, "the place of the zero pivot") =
          zero < 0 ? -1 : static_cast<std::int32_t>(zero / op.a.block_rows + op.a.base);
    });
  });
}

}  // namespace softgpu::libraries
