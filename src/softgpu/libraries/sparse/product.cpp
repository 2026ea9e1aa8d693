// Products of sparse and dense matrices, and of dense ones where a sparse one has entries.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/entries.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::pieces;
using gpupool::operations::SparseProduct;
using gpupool::operations::SparseSample;
using gpupool::operations::Transpose;

template <class N, class T>
void add_row_of(N* sums, N factor, const T* row, std::int64_t step, std::int64_t count, bool conjugated) {
  if (step == 1 && !conjugated) {
    for (std::int64_t j = 0; j < count; ++j) sums[j] += times(factor, to_number<N>(row[j]));
    return;
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const N value = to_number<N>(row[j * step]);
    sums[j] += times(factor, conjugated ? conjugate(value) : value);
  }
}

/// sums += factor · elements [j, j + count) of a row of B.
template <class N>
void add_row(N* sums, N factor, const View& b, std::int64_t row, std::int64_t j, std::int64_t count) {
  const auto add = [&](auto type) {
    const auto* const from = reinterpret_cast<const decltype(type)*>(b.address);
    add_row_of(sums, factor, from + offset_of(b, row, j), b.column, count, b.conjugated != 0);
  };
  if (b.type == element_of<N>) return add(N{});
  with_type(b.type, add);
}

template <class N>
void multiply(const SparseProduct& op, std::int64_t part, const Memory& memory) {
  const std::int64_t width = op.width(), height = op.height(), m = op.m();
  const std::int64_t tall = pieces(m, height), wide = pieces(op.n, width);
  const std::int64_t batch = part / tall / wide;
  const std::int64_t i = part % tall * height, i_end = std::min(m, i + height);
  const std::int64_t j = part / tall % wide * width, j_end = std::min(op.n, j + width);
  const Entries a(op.a, batch, memory, "A");
  const View b = plain(op.b, op.k(), op.n, batch, memory, "B");
  const View c = plain(op.c, m, op.n, batch, memory, "C");
  check_apart(c, m, op.n, "C");
  const N alpha = number<N>(op.alpha, memory, "alpha"), beta = number<N>(op.beta, memory, "beta");
  const std::int64_t count = j_end - j;
  static thread_local std::vector<N> room;
  room.assign(static_cast<std::size_t>((i_end - i) * count), N(0));
  const bool turned = op.transpose != Transpose::none;
  const auto add = [&](std::int64_t row, std::int64_t column, std::int64_t entry) {
    if (turned) std::swap(row, column);
    N value = a.template value<N>(entry);
    if (op.transpose == Transpose::conjugate) value = conjugate(value);
    add_row(room.data() + (row - i) * count, value, b, column, j, count);
  };
  if (op.gathers()) {
    a.each(i, i_end, add);
  } else {
    a.each(add);
  }
  write_block<N>(c, {i, i_end, j, j_end}, beta != N(0), [&](std::int64_t row, std::int64_t column, N was) {
    const N product = times(alpha, room[static_cast<std::size_t>((row - i) * count + column - j)]);
    return beta == N(0) ? product : product + times(beta, was);
  });
  // What was large once is not kept.
  if (room.capacity() > (std::size_t{1} << 20)) room = {};
}

template <class N>
void sample(const SparseSample& op, std::int64_t part, const Memory& memory) {
  const std::int64_t height = op.height(), tall = pieces(op.c.majors(), height);
  const std::int64_t batch = part / tall;
  const std::int64_t begin = part % tall * height, end = std::min(op.c.majors(), begin + height);
  const Entries c(op.c, batch, memory, "C");
  const View a = plain(op.a, op.c.rows, op.k, batch, memory, "A");
  const View b = plain(op.b, op.k, op.c.columns, batch, memory, "B");
  if (a.type != b.type) wrong("A and B are of different types");
  // So there are no more terms than memory holds.
  check_apart(a, op.c.rows, op.k, "A");
  check_apart(b, op.k, op.c.columns, "B");
  const N alpha = number<N>(op.alpha, memory, "alpha"), beta = number<N>(op.beta, memory, "beta");
  with_type(a.type, [&](auto type) {
    using T = decltype(type);
    c.each(begin, end, [&](std::int64_t row, std::int64_t column, std::int64_t entry) {
      const T* const left = reinterpret_cast<const T*>(a.address) + offset_of(a, row, 0);
      const T* const right = reinterpret_cast<const T*>(b.address) + offset_of(b, 0, column);
      N sum(0);
      for (std::int64_t term = 0; term < op.k; ++term) {
        const N one = to_number<N>(left[term * a.column]), other = to_number<N>(right[term * b.row]);
        sum += times(a.conjugated ? conjugate(one) : one, b.conjugated ? conjugate(other) : other);
      }
      sum = times(alpha, sum);
      if (beta != N(0)) sum += times(beta, c.template value<N>(entry));
      c.set_value(entry, sum);
    });
  });
}

}  // namespace

void run(const SparseProduct& op, const Parts& parts, const Memory& memory) {
  if (op.transpose > Transpose::conjugate) wrong("no such operation of a matrix");
  with_number(op.sum, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      multiply<decltype(type)>(op, static_cast<std::int64_t>(part), memory);
    });
  });
}

void run(const SparseSample& op, const Parts& parts, const Memory& memory) {
  if (op.c.format == SparseFormat::coordinates) wrong("entries that do not lie by rows or columns");
  with_number(op.sum, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      sample<decltype(type)>(op, static_cast<std::int64_t>(part), memory);
    });
  });
}

}  // namespace softgpu::libraries
