// Sparse matrices that are made: their rows are counted, then filled. Each row of the result is found alone,
// in order, so that it is the same whoever computes it.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/matrix.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Making;
using gpupool::operations::MakingStep;
using gpupool::operations::SparseMaking;

template <class N>
using Row = std::vector<std::pair<std::int64_t, N>>;

/// In order of columns; what has one column is added up as it comes.
template <class N>
void unite(Row<N>& row) {
  std::stable_sort(row.begin(), row.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  std::size_t count = 0;
  for (const auto& entry : row) {
    if (count != 0 && row[count - 1].first == entry.first) {
      row[count - 1].second += entry.second;
    } else {
      row[count++] = entry;
    }
  }
  row.resize(count);
}

/// Rows of what is made.
template <class N>
class Made {
 public:
  Made(const SparseMaking& op, const Memory& memory)
      : op_(op), valued_(op.step == MakingStep::fill || op.what == Making::dense) {
    const bool fits =
        op.what == Making::product
            ? op.a.columns == op.b.rows && op.a.rows == op.c.rows && op.b.columns == op.c.columns
        : op.what == Making::sum ? op.a.rows == op.c.rows && op.b.rows == op.c.rows &&
                                       op.a.columns == op.c.columns && op.b.columns == op.c.columns
                                 : op.what == Making::dense;
    if (!fits) wrong("matrices that do not fit each other");
    if (op.what == Making::dense) {
      dense_ = Dense<N>(op.dense, op.c.rows, op.c.columns, 0, memory, "the dense matrix");
      return;
    }
    for (const Sparse* const from : {&op.a, &op.b}) {
      if (from->turned || from->storage != Storage::compressed)
        wrong("a matrix that is not compressed by rows");
      matrices_.emplace_back(*from, 0, memory, from == &op.a ? "A" : "B", valued_);
    }
    if (!valued_) return;
    alpha_ = number<N>(op.alpha, memory, "alpha");
    beta_ = number<N>(op.beta, memory, "beta");
    if (op.what == Making::product && beta_ != N(0)) wrong("nothing is added to a sparse product");
  }

  void row(std::int64_t i, Row<N>& into) const {
    into.clear();
    if (op_.what == Making::dense) {
      for (std::int64_t j = 0; j < op_.c.columns; ++j) {
        if (const N value = dense_(i, j); value != N(0)) into.emplace_back(j, value);
      }
      return;
    }
    const auto& a = matrices_[0];
    const auto& b = matrices_[1];
    a.row(i, [&](std::int64_t j, std::int64_t at) {
      const N value = times(alpha_, a.value(at));
      if (op_.what == Making::sum) {
        into.emplace_back(j, value);
      } else {
        b.row(j, [&](std::int64_t column, std::int64_t other) {
          into.emplace_back(column, times(value, b.value(other)));
        });
      }
    });
    if (op_.what == Making::sum)
      b.row(i, [&](std::int64_t j, std::int64_t at) { into.emplace_back(j, times(beta_, b.value(at))); });
    unite(into);
  }

 private:
  const SparseMaking& op_;
  bool valued_;
  std::vector<SparseMatrix<N>> matrices_;
  Dense<N> dense_;
  N alpha_ = N(1), beta_ = N(1);
};

Indices counts_of(const SparseMaking& op, std::uint8_t base, const Memory& memory) {
  return {op.counts, op.c.rows + 1, op.count_type, base, memory, "the rows' counts"};
}

void add_up(const SparseMaking& op, const Memory& memory) {
  const Indices counts = counts_of(op, 0, memory), offsets = counts_of(op, op.count_base, memory);
  std::int64_t sum = 0;
  offsets.put(0, 0);
  for (std::int64_t i = 0; i < op.c.rows; ++i) {
    const std::int64_t count = counts[i + 1];
    if (count < 0 || count > gpupool::operations::max_size || sum > gpupool::operations::max_size)
      outside("the rows' counts");
    sum += count;
    offsets.put(i + 1, sum);
  }
  if (op.total == 0) return;
  if (sum > INT32_MAX) wrong("more entries than 32-bit indices can count");
  *memory.at<std::int32_t>(op.total, 1, "the number of entries") = static_cast<std::int32_t>(sum);
}

template <class N>
void make(const SparseMaking& op, std::uint64_t part, const Memory& memory) {
  const Made<N> made(op, memory);
  const std::int64_t begin = static_cast<std::int64_t>(part) * op.rows_of_part(),
                     end = std::min(begin + op.rows_of_part(), op.c.rows);
  Row<N> row;
  if (op.step == MakingStep::count) {
    const Indices counts = counts_of(op, 0, memory);
    for (std::int64_t i = begin; i < end; ++i) {
      made.row(i, row);
      counts.put(i + 1, static_cast<std::int64_t>(row.size()));
    }
    return;
  }
  const Indices counts = counts_of(op, op.count_base, memory);
  // How many there are was found on the device.
  const std::int64_t entries = counts[op.c.rows];
  if (entries < 0 || entries > op.c.entries) outside("C");
  const bool compressed = op.c.storage == Storage::compressed;
  const bool with_offsets = compressed && op.c.offsets != op.counts;
  const Indices offsets(op.c.offsets, compressed ? op.c.rows + 1 : entries, op.c.offset_type, op.c.base,
                        memory, "C");
  const Indices columns(op.c.indices, entries, op.c.index_type, op.c.base, memory, "C");
  const Values<N> values(op.c.values, entries, op.c.type, memory, "C");
  if (with_offsets && part == 0) offsets.put(0, 0);
  for (std::int64_t i = begin; i < end; ++i) {
    made.row(i, row);
    std::int64_t at = counts[i];
    const std::int64_t last = counts[i + 1];
    if (at < 0 || at > last || last > entries || last - at != static_cast<std::int64_t>(row.size()))
      outside("a row that is not as it was counted");
    if (with_offsets) offsets.put(i + 1, last);
    for (const auto& [column, value] : row) {
      if (!compressed) offsets.put(at, i);
      columns.put(at, column);
      values.put(at, value);
      ++at;
    }
  }
}

}  // namespace

void run(const SparseMaking& op, const Parts& parts, const Memory& memory) {
  if (op.what > Making::dense || op.step > MakingStep::fill || op.c.storage > Storage::coordinates)
    wrong("nothing like it is made");
  if (op.step == MakingStep::offsets) {
    parts.each(1, [&](std::uint64_t) { add_up(op, memory); });
    return;
  }
  with_number(op.sum, [&](auto type) {
    // Also where there are no rows: where they begin is written.
    parts.each(std::max<std::uint64_t>(1, op.parts()),
               [&](std::uint64_t part) { make<decltype(type)>(op, part, memory); });
  });
}

}  // namespace softgpu::libraries
