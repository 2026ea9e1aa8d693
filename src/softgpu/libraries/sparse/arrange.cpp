// Indices of sparse matrices: rows counted, entries sorted, matrices transposed.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <tuple>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sparse/matrix.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Arrange;
using gpupool::operations::SparseArrange;

class Arranging {
 public:
  Arranging(const SparseArrange& op, const Memory& memory) : op_(op), memory_(memory) {}

  void run() const {
    switch (op_.what) {
      case Arrange::compress:
        return compress();
      case Arrange::expand:
        return expand();
      case Arrange::sort:
        return sort();
      case Arrange::sort_rows:
        return sort_rows();
      case Arrange::identity:
        return std::iota(to(), to() + op_.entries, 0);
      case Arrange::transpose:
        return transpose();
    }
    wrong("indices are not arranged like this");
  }

 private:
  std::int32_t* at(std::uint64_t address, std::int64_t count, const char* what) const {
    return memory_.at<std::int32_t>(address, static_cast<std::uint64_t>(count), what);
  }
  std::int32_t* to() const { return at(op_.to, op_.entries, "the permutation"); }
  std::int32_t based(std::int64_t index) const {
    if (index + op_.base > INT32_MAX) wrong("more than 32-bit indices can count");
    return static_cast<std::int32_t>(index + op_.base);
  }

  /// Where each of `count` rows begins, of the rows of all entries.
  std::vector<std::int64_t> begins(const std::int32_t* rows, std::int64_t count) const {
    std::vector<std::int64_t> found(static_cast<std::size_t>(count) + 1);
    for (std::int64_t k = 0; k < op_.entries; ++k) {
      const std::int64_t row = std::int64_t{rows[k]} - op_.base;
      if (row < 0 || row >= count) outside("the indices");
      ++found[static_cast<std::size_t>(row) + 1];
    }
    for (std::size_t i = 1; i < found.size(); ++i) found[i] += found[i - 1];
    return found;
  }

  /// f(row, first entry, last one) of each row of a compressed matrix.
  template <class F>
  void each_row(F f) const {
    const std::int32_t* const offsets = at(op_.rows, op_.m + 1, "where rows begin");
    for (std::int64_t i = 0; i < op_.m; ++i) {
      const std::int64_t begin = std::int64_t{offsets[i]} - op_.base,
                         end = std::int64_t{offsets[i + 1]} - op_.base;
      if (begin < 0 || begin > end || end > op_.entries) outside("where rows begin");
      f(i, begin, end);
    }
  }

  void compress() const {
    std::int32_t* const offsets = at(op_.to, op_.m + 1, "where rows begin");
    const auto found = begins(at(op_.rows, op_.entries, "the rows"), op_.m);
    for (std::int64_t i = 0; i <= op_.m; ++i) offsets[i] = based(found[static_cast<std::size_t>(i)]);
  }

  void expand() const {
    std::int32_t* const rows = at(op_.to, op_.entries, "the rows");
    each_row([&](std::int64_t i, std::int64_t begin, std::int64_t end) {
      std::fill(rows + begin, rows + end, based(i));
    });
  }

  struct Entry {
    std::int32_t row, column, place;
  };
  static void sort_entries(std::vector<Entry>& entries) {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& one, const Entry& other) {
      return std::tie(one.row, one.column) < std::tie(other.row, other.column);
    });
  }

  void sort() const {
    std::int32_t* const rows = at(op_.rows, op_.entries, "the rows");
    std::int32_t* const columns = at(op_.columns, op_.entries, "the columns");
    std::int32_t* const places = op_.to == 0 ? nullptr : to();
    std::vector<Entry> entries(static_cast<std::size_t>(op_.entries));
    for (std::size_t k = 0; k < entries.size(); ++k)
      entries[k] = {rows[k], columns[k], places == nullptr ? 0 : places[k]};
    sort_entries(entries);
    for (std::size_t k = 0; k < entries.size(); ++k) {
      rows[k] = entries[k].row;
      columns[k] = entries[k].column;
      if (places != nullptr) places[k] = entries[k].place;
    }
  }

  void sort_rows() const {
    std::int32_t* const columns = at(op_.columns, op_.entries, "the columns");
    std::int32_t* const places = op_.to == 0 ? nullptr : to();
    std::vector<Entry> entries;
    each_row([&](std::int64_t, std::int64_t begin, std::int64_t end) {
      entries.clear();
      for (std::int64_t k = begin; k < end; ++k)
        entries.push_back({0, columns[k], places == nullptr ? 0 : places[k]});
      sort_entries(entries);
      for (std::int64_t k = begin; k < end; ++k) {
        columns[k] = entries[static_cast<std::size_t>(k - begin)].column;
        if (places != nullptr) places[k] = entries[static_cast<std::size_t>(k - begin)].place;
      }
    });
  }

  void transpose() const {
    const std::int32_t* const columns = at(op_.columns, op_.entries, "the columns");
    std::int32_t* const offsets = at(op_.to, op_.n + 1, "where columns begin");
    std::int32_t* const rows = at(op_.to_columns, op_.entries, "the rows of the result");
    const std::size_t bytes = gpupool::operations::bytes_of(op_.type);
    if (bytes == 0) wrong("values of an unknown type");
    const bool valued = op_.to_values != 0;
    if (valued) {
      memory_.check(op_.values, static_cast<std::uint64_t>(op_.entries), bytes, "the values");
      memory_.check(op_.to_values, static_cast<std::uint64_t>(op_.entries), bytes,
                    "the values of the result");
    }
    const auto found = begins(columns, op_.n);
    std::vector<std::int64_t> next(found);
    each_row([&](std::int64_t i, std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t column = std::int64_t{columns[k]} - op_.base;
        // Rows that overlap have more entries than there are.
        if (column < 0 || column >= op_.n) outside("the columns");
        const std::int64_t place = next[static_cast<std::size_t>(column)]++;
        if (place >= found[static_cast<std::size_t>(column) + 1]) outside("where rows begin");
        rows[place] = based(i);
        if (valued)
          std::memcpy(reinterpret_cast<void*>(op_.to_values + static_cast<std::uint64_t>(place) * bytes),
                      reinterpret_cast<const void*>(op_.values + static_cast<std::uint64_t>(k) * bytes),
                      bytes);
      }
    });
    for (std::int64_t j = 0; j <= op_.n; ++j) offsets[j] = based(found[static_cast<std::size_t>(j)]);
  }

  const SparseArrange& op_;
  const Memory& memory_;
};

}  // namespace

void run(const SparseArrange& op, const Parts& parts, const Memory& memory) {
  parts.each(1, [&](std::uint64_t) { Arranging(op, memory).run(); });
}

}  // namespace softgpu::libraries
