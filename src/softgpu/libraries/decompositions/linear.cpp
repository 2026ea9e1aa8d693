// Factorisations that solve systems, and what is solved with them: Cholesky's, LU, symmetric indefinite ones.
#include "softgpu/libraries/decompositions/task.h"

namespace softgpu::libraries {
namespace {

using lapack::call;

/// A = L · U where rows stay where they are, by panels of columns: LAPACK has no such function. The first
/// column without pivot, from 1 on, or 0.
template <class N>
std::int64_t factor_in_place(const Matrix<N>& a) {
  constexpr std::int64_t width = 32;
  const std::int64_t order = std::min(a.rows, a.columns);
  std::int64_t info = 0;
  for (std::int64_t begin = 0; begin < order; begin += width) {
    const std::int64_t end = std::min(order, begin + width);
    for (std::int64_t j = begin; j < end; ++j) {
      const N pivot = a.at(j, j);
      if (pivot == N(0)) {
        if (info == 0) info = j + 1;
        continue;
      }
      for (std::int64_t i = j + 1; i < a.rows; ++i) a.at(i, j) /= pivot;
      for (std::int64_t c = j + 1; c < end; ++c) {
        const N factor = a.at(j, c);
        for (std::int64_t i = j + 1; i < a.rows; ++i) a.at(i, c) -= times(a.at(i, j), factor);
      }
    }
    if (end == a.columns) break;
    View lower = room_view(&a.at(begin, begin), a.leading, element_of<N>);
    lower.unit = true;
    lower.above = 0;
    solve_in_place(lower, 0, end - begin, a.columns - end, &a.at(begin, end), a.leading);
    if (end == a.rows) continue;
    gemm(Trans::none, Trans::none, a.rows - end, a.columns - end, end - begin, N(-1), &a.at(end, begin),
         a.leading, &a.at(begin, end), a.leading, N(1), &a.at(end, end), a.leading);
  }
  return info;
}

template <class N>
std::int64_t lu(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  if (task.op.pivots == 0) return factor_in_place(a);
  std::vector<std::int64_t> pivots(static_cast<std::size_t>(std::min(a.rows, a.columns)));
  std::int64_t info = 0;
  call<N>("getrf", a.rows, a.columns, a.data, a.leading, pivots.data(), &info);
  task.write_pivots(pivots);
  return info;
}

template <class N>
std::int64_t lu_solve(const Task<N>& task, const Matrix<N>& a) {
  const Matrix<N> b = task.solution();
  std::vector<std::int64_t> pivots;
  if (task.op.pivots != 0) {
    pivots = task.read_pivots(a.rows);
  } else {
    for (std::int64_t i = 1; i <= a.rows; ++i) pivots.push_back(i);
  }
  for (const std::int64_t pivot : pivots) {
    if (pivot < 1 || pivot > a.rows) wrong("a pivot that is no row");
  }
  constexpr char transposes[] = {'N', 'T', 'C'};
  std::int64_t info = 0;
  call<N>("getrs", transposes[task.op.transpose], a.rows, b.columns, a.data, a.leading, pivots.data(), b.data,
          b.leading, &info);
  return info;
}

/// Pivots of a symmetric matrix, as its factorisation makes them: negative ones in pairs, and rows are
/// exchanged with such as were not used yet.
template <class N>
std::vector<std::int64_t> symmetric_pivots(const Task<N>& task, std::int64_t order) {
  std::vector<std::int64_t> pivots = task.read_pivots(order);
  const bool upper = task.op.upper;
  for (std::int64_t count = 0; count < order; ++count) {
    const std::int64_t at = upper ? order - count : count + 1;
    const std::int64_t pivot = pivots[static_cast<std::size_t>(at - 1)];
    const bool pair = pivot < 0;
    const std::int64_t row = pair ? -(pivot + 1) + 1 : pivot;
    if (row < 1 || row > order || (upper ? row > at : row < at)) wrong("a pivot that is no row");
    if (!pair) continue;
    const std::int64_t other = upper ? at - 1 : at + 1;
    if (other < 1 || other > order || pivots[static_cast<std::size_t>(other - 1)] != pivot)
      wrong("pivots that are no pair");
    ++count;
  }
  return pivots;
}

template <class N>
std::int64_t ldl(const Task<N>& task, const Matrix<N>& a) {
  std::vector<std::int64_t> pivots(static_cast<std::size_t>(a.rows));
  std::int64_t info = 0;
  lapack::with_work<N>([&](N* work, std::int64_t size) {
    call<N>("sytrf", task.triangle(), a.rows, a.data, a.leading, pivots.data(), work, size, &info);
  });
  task.write_pivots(pivots);
  return info;
}

template <class N>
std::int64_t solve_system(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.n, task.op.n, "A");
  const auto b = task.matrix(task.op.b, task.op.n, task.op.columns, "B");
  const auto x = task.matrix(task.op.c, task.op.n, task.op.columns, "X");
  Own<N>::copy(b, x);
  std::vector<std::int64_t> pivots(static_cast<std::size_t>(a.rows));
  std::int64_t info = 0;
  call<N>("gesv", a.rows, x.columns, a.data, a.leading, pivots.data(), x.data, x.leading, &info);
  if (task.op.pivots != 0) task.write_pivots(pivots);
  return info;
}

template <class N>
std::int64_t solve_least_squares(const Task<N>& task) {
  const auto a = task.matrix(task.op.a, task.op.m, task.op.n, "A");
  if (a.rows < a.columns) wrong("more unknowns than equations");
  const auto x = task.matrix(task.op.c, task.op.n, task.op.columns, "X");
  const Own<N> b(task.matrix(task.op.b, task.op.m, task.op.columns, "B"));
  std::int64_t info = 0;
  lapack::with_work<N>([&](N* work, std::int64_t size) {
    call<N>("gels", 'N', a.rows, a.columns, b->columns, a.data, a.leading, b->data, b->leading, work, size,
            &info);
  });
  if (info == 0) Own<N>::copy(*b, x);
  return info;
}

/// Exchanges rows as `pivots` say, every `m`-th of them, backward where `right`.
template <class N>
std::int64_t exchange(const Task<N>& task) {
  const Decomposition& op = task.op;
  const std::int64_t first = op.k, last = op.columns, step = op.m;
  if (first < 1 || step < 1) wrong("rows begin with 1");
  if (last < first) return 0;
  std::int64_t stored = 0;
  if (__builtin_mul_overflow(last - first, step, &stored)) wrong("pivots lie too far apart");
  const std::vector<std::int64_t> pivots = task.read_pivots(first + stored);
  const auto pivot = [&](std::int64_t row) {
    return pivots[static_cast<std::size_t>(first - 1 + (row - first) * step)];
  };
  std::int64_t rows = last;
  for (std::int64_t row = first; row <= last; ++row) {
    if (pivot(row) < 1) wrong("a pivot that is no row");
    rows = std::max(rows, pivot(row));
  }
  const auto a = task.matrix(op.a, rows, op.n, "A");
  for (std::int64_t count = 0; count <= last - first; ++count) {
    const std::int64_t row = op.right ? last - count : first + count;
    for (std::int64_t j = 0; j < a.columns; ++j) std::swap(a.at(row - 1, j), a.at(pivot(row) - 1, j));
  }
  return 0;
}

}  // namespace

template <class N>
std::int64_t solve_linear(const Task<N>& task) {
  const Decomposition& op = task.op;
  if (op.what == Decomposing::lu) return lu(task);
  if (op.what == Decomposing::exchange) return exchange(task);
  if (op.what == Decomposing::system) return solve_system(task);
  if (op.what == Decomposing::least_squares) return solve_least_squares(task);
  const auto a = task.matrix(op.a, op.n, op.n, "A");
  std::int64_t info = 0;
  switch (op.what) {
    case Decomposing::cholesky:
      call<N>("potrf", task.triangle(), a.rows, a.data, a.leading, &info);
      return info;
    case Decomposing::cholesky_solve: {
      const Matrix<N> b = task.solution();
      call<N>("potrs", task.triangle(), a.rows, b.columns, a.data, a.leading, b.data, b.leading, &info);
      return info;
    }
    case Decomposing::cholesky_inverse:
      call<N>("potri", task.triangle(), a.rows, a.data, a.leading, &info);
      return info;
    case Decomposing::lu_solve:
      return lu_solve(task, a);
    case Decomposing::ldl:
      return ldl(task, a);
    case Decomposing::ldl_solve: {
      const auto pivots = symmetric_pivots(task, a.rows);
      const Matrix<N> b = task.solution();
      call<N>("sytrs", task.triangle(), a.rows, b.columns, a.data, a.leading, pivots.data(), b.data,
              b.leading, &info);
      return info;
    }
    case Decomposing::ldl_inverse: {
      const auto pivots = symmetric_pivots(task, a.rows);
      std::vector<N> work(static_cast<std::size_t>(2 * a.rows));
      call<N>("sytri", task.triangle(), a.rows, a.data, a.leading, pivots.data(), work.data(), &info);
      return info;
    }
    case Decomposing::triangle_inverse:
      call<N>("trtri", task.triangle(), op.unit ? 'U' : 'N', a.rows, a.data, a.leading, &info);
      return info;
    case Decomposing::triangle_product:
      call<N>("lauum", task.triangle(), a.rows, a.data, a.leading, &info);
      return info;
    default:
      wrong("no such factorisation");
  }
}

SOFTGPU_LAPACK_TYPES(solve_linear)

}  // namespace softgpu::libraries
