// Solutions with triangles of sparse matrices. A part has some columns of the result: each row needs others.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/entries.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::pieces;
using gpupool::operations::SparseSolve;
using gpupool::operations::Transpose;

/// An entry beside the diagonal.
template <class N>
struct Entry {
  std::int64_t column;
  N value;
};

/// The triangle op(A) by rows, whatever A lies by.
template <class N>
struct Triangle {
  std::vector<std::int64_t> begins;
  std::vector<Entry<N>> entries;
  std::vector<N> diagonal;

  Triangle(const SparseSolve& op, const Memory& memory)
      : begins(static_cast<std::size_t>(op.a.rows) + 1), diagonal(static_cast<std::size_t>(op.a.rows), N(0)) {
    const Entries a(op.a, 0, memory, "A");
    const auto each = [&](auto f) {
      a.each([&](std::int64_t row, std::int64_t column, std::int64_t entry) {
        if (op.upper ? column < row : column > row) return;
        if (op.transpose != Transpose::none) std::swap(row, column);
        f(row, column, entry);
      });
    };
    const auto value_of = [&](std::int64_t entry) {
      const N value = a.template value<N>(entry);
      return op.transpose == Transpose::conjugate ? conjugate(value) : value;
    };
    // Copied first, for indices that are read twice may differ.
    struct Found {
      std::int64_t row, column;
      N value;
    };
    std::vector<Found> found;
    each([&](std::int64_t row, std::int64_t column, std::int64_t entry) {
      if (row == column) {
        diagonal[static_cast<std::size_t>(row)] = value_of(entry);
        return;
      }
      found.push_back({row, column, value_of(entry)});
      ++begins[static_cast<std::size_t>(row) + 1];
    });
    for (std::size_t row = 1; row < begins.size(); ++row) begins[row] += begins[row - 1];
    entries.resize(found.size());
    std::vector<std::int64_t> next = begins;
    for (const Found& one : found)
      entries[static_cast<std::size_t>(next[static_cast<std::size_t>(one.row)]++)] = {one.column, one.value};
    if (op.unit) diagonal.assign(diagonal.size(), N(1));
  }
};

template <class N>
void solve(const SparseSolve& op, std::int64_t part, const Memory& memory) {
  const std::int64_t m = op.a.rows, j = part * op.width(), j_end = std::min(op.n, j + op.width());
  const View b = plain(op.b, m, op.n, 0, memory, "B");
  const View c = plain(op.c, m, op.n, 0, memory, "C");
  check_apart(c, m, op.n, "C");
  if (m == 0) return;
  const N alpha = number<N>(op.alpha, memory, "alpha");
  const Triangle<N> a(op, memory);
  const std::int64_t count = j_end - j;
  std::vector<N> x(static_cast<std::size_t>(m * count));
  read_block(transposed(b, false), {j, j_end, 0, m}, x.data());
  const bool forward = (op.upper != 0) == (op.transpose != Transpose::none);
  for (std::int64_t step = 0; step < m; ++step) {
    const std::int64_t row = forward ? step : m - 1 - step;
    const auto at = static_cast<std::size_t>(row);
    N* const to = x.data() + row * count;
    for (std::int64_t column = 0; column < count; ++column) to[column] = times(alpha, to[column]);
    for (std::int64_t i = a.begins[at]; i < a.begins[at + 1]; ++i) {
      const Entry<N>& entry = a.entries[static_cast<std::size_t>(i)];
      const N* const from = x.data() + entry.column * count;
      for (std::int64_t column = 0; column < count; ++column) to[column] -= times(entry.value, from[column]);
    }
    for (std::int64_t column = 0; column < count; ++column) to[column] /= a.diagonal[at];
  }
  write_block<N>(c, {0, m, j, j_end}, false, [&](std::int64_t row, std::int64_t column, N) {
    return x[static_cast<std::size_t>(row * count + column - j)];
  });
}

}  // namespace

void run(const SparseSolve& op, const Parts& parts, const Memory& memory) {
  if (op.transpose > Transpose::conjugate || op.a.rows != op.a.columns) wrong("no such triangle");
  with_number(op.sum, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      solve<decltype(type)>(op, static_cast<std::int64_t>(part), memory);
    });
  });
}

}  // namespace softgpu::libraries
