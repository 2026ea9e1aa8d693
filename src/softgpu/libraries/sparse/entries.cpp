// Entries of sparse matrices beside dense ones, and vectors with few entries.
#include <algorithm>
#include <cstdint>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/matrix.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Entries;
using gpupool::operations::Indexed;
using gpupool::operations::SparseEntries;
using gpupool::operations::SparseVector;

/// f(row, column, number of the value) of what is stored in the part's rows.
template <class N, class F>
void each_of_part(const SparseEntries& op, const SparseMatrix<N>& s, std::int64_t begin, std::int64_t end,
                  F f) {
  if (!op.by_rows()) {
    s.all(f);
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) s.row(i, [&](std::int64_t j, std::int64_t at) { f(i, j, at); });
}

template <class N>
void entries(const SparseEntries& op, std::uint64_t part, const Memory& memory) {
  const auto parts_m = static_cast<std::uint64_t>(std::max<std::int64_t>(1, op.parts_m()));
  const auto batch = static_cast<std::int64_t>(part / parts_m);
  const std::int64_t step = op.by_rows() ? op.rows_of_part() * op.s.block_rows : op.s.rows;
  const std::int64_t begin = static_cast<std::int64_t>(part % parts_m) * step,
                     end = std::min(begin + step, op.s.rows);
  const SparseMatrix<N> s(op.s, batch, memory, "the sparse matrix");
  const std::int64_t m = op.s.turned ? op.s.columns : op.s.rows, n = op.s.turned ? op.s.rows : op.s.columns;
  if (op.what == Entries::spread) {
    const Dense<N> a(op.a, m, n, batch, memory, "the dense matrix");
    const auto put = [&](std::int64_t i, std::int64_t j, N value) {
      op.s.turned ? a.put(j, i, value) : a.put(i, j, value);
    };
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < op.s.columns; ++j) put(i, j, N(0));
    }
    each_of_part(op, s, begin, end,
                 [&](std::int64_t i, std::int64_t j, std::int64_t at) { put(i, j, s.value(at)); });
    return;
  }
  const Dense<N> a(op.a, m, op.k, batch, memory, "A"), b(op.b, op.k, n, batch, memory, "B");
  const N alpha = number<N>(op.alpha, memory, "alpha"), beta = number<N>(op.beta, memory, "beta");
  each_of_part(op, s, begin, end, [&](std::int64_t i, std::int64_t j, std::int64_t at) {
    if (op.s.turned) std::swap(i, j);
    N sum(0);
    for (std::int64_t term = 0; term < op.k; ++term) sum += times(a(i, term), b(term, j));
    N result = times(alpha, sum);
    if (beta != N(0)) result += times(beta, s.value(at));
    s.put(at, result);
  });
}

template <class N>
void vector(const SparseVector& op, const Memory& memory) {
  const Indices indices(op.indices, op.entries, op.index_type, op.base, memory, "the indices");
  const Values<N> x(op.x, op.entries, op.x_type, memory, "x"), y(op.y, op.size, op.y_type, memory, "y");
  const auto each = [&](auto f) {
    for (std::int64_t at = 0; at < op.entries; ++at) {
      const std::int64_t i = indices[at];
      if (i < 0 || i >= op.size) outside("the indices");
      f(at, i);
    }
  };
  const auto factor = [&](const auto& of, const char* what) { return number<N>(of, memory, what); };
  switch (op.what) {
    case Indexed::gather:
      return each([&](std::int64_t at, std::int64_t i) { x.put(at, y[i]); });
    case Indexed::scatter:
      return each([&](std::int64_t at, std::int64_t i) { y.put(i, x[at]); });
    case Indexed::axpby: {
      const N alpha = factor(op.alpha, "alpha"), beta = factor(op.beta, "beta");
      if (beta != N(1)) {
        for (std::int64_t i = 0; i < op.size; ++i) y.put(i, beta == N(0) ? N(0) : times(beta, y[i]));
      }
      return each([&](std::int64_t at, std::int64_t i) { y.put(i, y[i] + times(alpha, x[at])); });
    }
    case Indexed::rotate: {
      const N cosine = factor(op.alpha, "c"), sine = factor(op.beta, "s");
      return each([&](std::int64_t at, std::int64_t i) {
        const N one = x[at], other = y[i];
        x.put(at, times(cosine, one) + times(sine, other));
        y.put(i, times(cosine, other) - times(sine, one));
      });
    }
    case Indexed::dot: {
      const Values<N> result(op.result, 1, op.result_type, memory, "the result");
      N sum(0);
      each([&](std::int64_t at, std::int64_t i) {
        sum += times(op.conjugated ? conjugate(x[at]) : x[at], y[i]);
      });
      return result.put(0, sum);
    }
  }
  wrong("nothing like it is done with sparse vectors");
}

}  // namespace

void run(const SparseEntries& op, const Parts& parts, const Memory& memory) {
  if (op.what > Entries::spread) wrong("nothing like it is done with entries");
  with_number(op.sum, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) { entries<decltype(type)>(op, part, memory); });
  });
}

void run(const SparseVector& op, const Parts& parts, const Memory& memory) {
  with_number(op.sum,
              [&](auto type) { parts.each(1, [&](std::uint64_t) { vector<decltype(type)>(op, memory); }); });
}

}  // namespace softgpu::libraries
