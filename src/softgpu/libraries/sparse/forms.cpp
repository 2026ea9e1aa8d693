// Other forms of sparse matrices: offsets and rows of each other, sorted entries, dense ones.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/entries.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::OnIndices;
using gpupool::operations::SparseIndices;
using gpupool::operations::SparseToDense;

std::int32_t* array(std::uint64_t address, std::int64_t count, const Memory& memory, const char* what) {
  return memory.at<std::int32_t>(address, static_cast<std::uint64_t>(count), what);
}

/// Read once, whoever else writes there.
std::int32_t read(const std::int32_t& at) {
  return __atomic_load_n(&at, __ATOMIC_RELAXED);
}

/// How many of `count` numbers in order are below (or, `or_equal`, at) `bound`.
std::int64_t count_below(const std::int32_t* numbers, std::int64_t count, std::int64_t bound, bool or_equal) {
  std::int64_t first = 0;
  while (count > 0) {
    const std::int64_t half = count / 2;
    const std::int32_t number = read(numbers[first + half]);
    if (number < bound || (or_equal && number == bound)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

void compress(const SparseIndices& op, std::int64_t begin, const Memory& memory) {
  const std::int32_t* const rows = array(op.rows, op.entries, memory, "the entries' rows");
  std::int32_t* const offsets = array(op.offsets, op.m + 1, memory, "the offsets");
  for (std::int64_t row = begin, end = std::min(op.m + 1, begin + SparseIndices::step); row < end; ++row)
    offsets[row] = static_cast<std::int32_t>(op.base + count_below(rows, op.entries, row + op.base, false));
}

/// Each part finds the rows of its own entries, so that offsets of any value let no part write elsewhere.
void expand(const SparseIndices& op, std::int64_t begin, const Memory& memory) {
  const std::int32_t* const offsets = array(op.offsets, op.m + 1, memory, "the offsets");
  std::int32_t* const rows = array(op.rows, op.entries, memory, "the entries' rows");
  std::int64_t row = count_below(offsets, op.m + 1, begin + op.base, true);  // one more than the first's
  for (std::int64_t i = begin, end = std::min(op.entries, begin + SparseIndices::step); i < end; ++i) {
    while (row <= op.m && read(offsets[row]) <= i + op.base) ++row;
    if (row < 1 || row > op.m)
      throw Failure(softgpu::Fault::illegal_address, "the offsets: an entry is in no row");
    rows[i] = static_cast<std::int32_t>(row - 1 + op.base);
  }
}

struct Sorted {
  std::int32_t row, column, number;
};

/// Sorts entries [begin, end) by columns, or (`rows`) by rows and then columns; equal ones stay in order.
void sort(std::int32_t* rows, std::int32_t* columns, std::int32_t* permutation, std::int64_t begin,
          std::int64_t end) {
  static thread_local std::vector<Sorted> room;
  room.clear();
  for (std::int64_t i = begin; i < end; ++i)
    room.push_back({rows == nullptr ? 0 : rows[i], columns[i], permutation == nullptr ? 0 : permutation[i]});
  std::stable_sort(room.begin(), room.end(), [](const Sorted& one, const Sorted& other) {
    return one.row != other.row ? one.row < other.row : one.column < other.column;
  });
  for (std::int64_t i = begin; i < end; ++i) {
    const Sorted& one = room[static_cast<std::size_t>(i - begin)];
    if (rows != nullptr) rows[i] = one.row;
    columns[i] = one.column;
    if (permutation != nullptr) permutation[i] = one.number;
  }
}

std::int32_t* permutation_of(const SparseIndices& op, const Memory& memory) {
  return op.permutation == 0 ? nullptr : array(op.permutation, op.entries, memory, "the permutation");
}

void sort_in_rows(const SparseIndices& op, std::int64_t part, const Memory& memory) {
  const std::int32_t* const offsets = array(op.offsets, op.m + 1, memory, "the offsets");
  std::int32_t* const columns = array(op.columns, op.entries, memory, "the entries' columns");
  std::int32_t* const permutation = permutation_of(op, memory);
  // The first offset says what they count from.
  const std::int32_t base = read(offsets[0]);
  const std::int64_t begin = part * op.height(), end = std::min(op.m, begin + op.height());
  for (std::int64_t row = begin; row < end; ++row)
    sort(nullptr, columns, permutation, checked(read(offsets[row]), base, op.entries + 1, "the offsets"),
         checked(read(offsets[row + 1]), base, op.entries + 1, "the offsets"));
}

void run_part(const SparseIndices& op, std::int64_t part, const Memory& memory) {
  const std::int64_t begin = part * SparseIndices::step;
  switch (op.what) {
    case OnIndices::compress:
      return compress(op, begin, memory);
    case OnIndices::expand:
      return expand(op, begin, memory);
    case OnIndices::count: {
      std::int32_t* const to = array(op.permutation, op.entries, memory, "the permutation");
      for (std::int64_t i = begin, end = std::min(op.entries, begin + SparseIndices::step); i < end; ++i)
        to[i] = static_cast<std::int32_t>(i);
      return;
    }
    case OnIndices::sort:
      return sort(array(op.rows, op.entries, memory, "the entries' rows"),
                  array(op.columns, op.entries, memory, "the entries' columns"), permutation_of(op, memory),
                  0, op.entries);
    case OnIndices::sort_in_rows:
      return sort_in_rows(op, part, memory);
  }
  wrong("nothing that is done with indices");
}

template <class N>
void to_dense(const SparseToDense& op, std::int64_t part, const Memory& memory) {
  const Entries a(op.a, 0, memory, "A");
  const View b = plain(op.b, op.a.rows, op.a.columns, 0, memory, "B");
  check_apart(b, op.a.rows, op.a.columns, "B");
  const std::int64_t begin = part * op.height(), end = std::min(op.a.majors(), begin + op.height());
  const bool by_columns = op.a.format == SparseFormat::by_columns;
  write_block<N>(b, by_columns ? Block{0, op.a.rows, begin, end} : Block{begin, end, 0, op.a.columns}, false,
                 [](std::int64_t, std::int64_t, N) { return N(0); });
  a.each(begin, end, [&](std::int64_t row, std::int64_t column, std::int64_t entry) {
    const N value = a.template value<N>(entry);
    write_block<N>(b, {row, row + 1, column, column + 1}, false,
                   [&](std::int64_t, std::int64_t, N) { return value; });
  });
}

}  // namespace

void run(const SparseIndices& op, const Parts& parts, const Memory& memory) {
  // Indices have 32 bits.
  if (op.base > 1 || op.m >= INT32_MAX || op.entries >= INT32_MAX) wrong("indices that have no 32 bits");
  parts.each(op.parts(), [&](std::uint64_t part) { run_part(op, static_cast<std::int64_t>(part), memory); });
}

void run(const SparseToDense& op, const Parts& parts, const Memory& memory) {
  const auto convert = [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      to_dense<decltype(type)>(op, static_cast<std::int64_t>(part), memory);
    });
  };
  // Narrower ones are single precision, exactly.
  if (gpupool::operations::bytes_of(op.a.type) < 4) return convert(float{});
  with_number(op.a.type, convert);
}

}  // namespace softgpu::libraries
