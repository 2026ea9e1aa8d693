// Sparse matrices (libraries/operations/sparse_matrix.h) in device memory. Their indices are a program's
// data: each is looked at before anything is done with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "libraries/operations/sparse.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {

using gpupool::operations::Index;
using gpupool::operations::Sparse;
using gpupool::operations::Storage;

[[noreturn]] inline void outside(const char* what) {
  throw Failure(softgpu::Fault::illegal_address, std::string(what) + ": an index lies outside of the matrix");
}

/// The address `count` elements behind; nothing is there before it has been checked.
inline std::uint64_t behind(std::uint64_t address, std::int64_t count, std::size_t bytes) {
  return address + static_cast<std::uint64_t>(count) * bytes;
}

/// `batch` matrices of so many elements behind.
inline std::int64_t of_batch(std::int64_t stride, std::int64_t batch) {
  std::int64_t far = 0;
  if (__builtin_mul_overflow(stride, batch, &far)) wrong("batches lie too far apart");
  return far;
}

/// Indices in memory, as they are counted from 0.
class Indices {
 public:
  Indices() = default;
  Indices(std::uint64_t address, std::int64_t count, Index type, std::uint8_t base, const Memory& memory,
          const char* what)
      : base_(base), wide_(type == Index::i64) {
    if (type != Index::i32 && type != Index::i64) wrong(std::string(what) + ": unknown type of indices");
    if (wide_) {
      long_ = memory.at<std::int64_t>(address, static_cast<std::uint64_t>(count), what);
    } else {
      short_ = memory.at<std::int32_t>(address, static_cast<std::uint64_t>(count), what);
    }
  }
  [[nodiscard]] std::int64_t operator[](std::int64_t at) const {
    const std::int64_t raw = wide_ ? long_[at] : short_[at];
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(raw) - base_);
  }
  void put(std::int64_t at, std::int64_t index) const {
    if (wide_) {
      long_[at] = index + base_;
    } else if (index + base_ <= INT32_MAX) {
      short_[at] = static_cast<std::int32_t>(index + base_);
    } else {
      wrong("more entries than 32-bit indices can count");
    }
  }

 private:
  std::int64_t* long_ = nullptr;
  std::int32_t* short_ = nullptr;
  std::uint8_t base_ = 0;
  bool wide_ = false;
};

/// Elements in memory as numbers to compute with.
template <class N>
class Values {
 public:
  Values() = default;
  Values(std::uint64_t address, Element type)
      : address_(address), type_(type), direct_(type == element_of<N>) {}
  Values(std::uint64_t address, std::int64_t count, Element type, const Memory& memory, const char* what)
      : Values(address, type) {
    const std::size_t bytes = gpupool::operations::bytes_of(type);
    if (bytes == 0) wrong(std::string(what) + ": unknown type");
    memory.check(address, static_cast<std::uint64_t>(count), bytes, what);
  }
  [[nodiscard]] N operator[](std::int64_t at) const {
    if (direct_) return reinterpret_cast<const N*>(address_)[at];
    N found{};
    with_type(type_,
              [&](auto t) { found = to_number<N>(reinterpret_cast<const decltype(t)*>(address_)[at]); });
    return found;
  }
  void put(std::int64_t at, N value) const {
    if (direct_) {
      reinterpret_cast<N*>(address_)[at] = value;
      return;
    }
    with_type(type_,
              [&](auto t) { reinterpret_cast<decltype(t)*>(address_)[at] = to_element<decltype(t)>(value); });
  }

 private:
  std::uint64_t address_ = 0;
  Element type_ = Element::f32;
  bool direct_ = false;
};

/// A dense matrix that is stored whole.
template <class N>
class Dense {
 public:
  Dense() = default;
  Dense(View view, std::int64_t rows, std::int64_t columns, std::int64_t batch, const Memory& memory,
        const char* what) {
    view.below = view.above = gpupool::operations::all_diagonals;
    view.packed = Packed::no;
    view.structure = Structure::zero;
    view_ = located(view, rows, columns, batch, memory, what);
    // Not more elements than memory has: they are what loops run over.
    check_apart(view_, rows, columns, what);
    if ((rows > 1 && view_.row == 0) || (columns > 1 && view_.column == 0))
      wrong(std::string(what) + ": elements overlap");
    values_ = Values<N>(view_.address, view_.type);
  }
  [[nodiscard]] N operator()(std::int64_t i, std::int64_t j) const {
    const N value = values_[i * view_.row + j * view_.column];
    return view_.conjugated ? conjugate(value) : value;
  }
  void put(std::int64_t i, std::int64_t j, N value) const {
    values_.put(i * view_.row + j * view_.column, value);
  }

 private:
  View view_;
  Values<N> values_;
};

template <class N>
class SparseMatrix {
 public:
  /// Without `with_values` all values are 1, and none is read.
  SparseMatrix(const Sparse& stored, std::int64_t batch, const Memory& memory, const char* what,
               bool with_values = true)
      : stored_(stored), what_(what), block_(stored.block_rows * stored.block_columns), valued_(with_values) {
    if (stored.storage > Storage::padded) wrong(std::string(what) + ": unknown form of a sparse matrix");
    const std::int64_t rows = stored.rows / stored.block_rows;
    if (stored.storage == Storage::padded) {
      width_ = rows == 0 ? 0 : stored.entries / rows;
    } else {
      const bool compressed = stored.storage == Storage::compressed;
      offsets_ =
          Indices(behind(stored.offsets, of_batch(stored.offsets_stride, batch),
                         gpupool::operations::bytes_of(stored.offset_type)),
                  compressed ? rows + 1 : stored.entries, stored.offset_type, stored.base, memory, what);
    }
    indices_ = Indices(behind(stored.indices, of_batch(stored.indices_stride, batch),
                              gpupool::operations::bytes_of(stored.index_type)),
                       stored.entries, stored.index_type, stored.base, memory, what);
    std::int64_t count = 0;
    if (__builtin_mul_overflow(stored.entries, block_, &count)) outside(what);
    if (!with_values) return;
    values_ = Values<N>(behind(stored.values, of_batch(stored.values_stride, batch),
                               gpupool::operations::bytes_of(stored.type)),
                        count, stored.type, memory, what);
  }

  [[nodiscard]] std::int64_t rows() const { return stored_.rows; }
  [[nodiscard]] std::int64_t columns() const { return stored_.columns; }
  [[nodiscard]] N value(std::int64_t at) const {
    if (!valued_) return N(1);
    return stored_.conjugated ? conjugate(values_[at]) : values_[at];
  }
  void put(std::int64_t at, N value) const { values_.put(at, value); }

  /// f(column, number of the value) for what is stored of row i.
  template <class F>
  void row(std::int64_t i, F f) const {
    const std::int64_t r = i / stored_.block_rows, inner = i % stored_.block_rows;
    std::int64_t begin = r * width_, end = begin + width_;
    if (stored_.storage == Storage::compressed) {
      begin = offsets_[r];
      end = offsets_[r + 1];
      if (begin < 0 || begin > end || end > stored_.entries) outside(what_);
    } else if (stored_.storage == Storage::coordinates) {
      begin = starts_[static_cast<std::size_t>(r)];
      end = starts_[static_cast<std::size_t>(r) + 1];
    }
    for (std::int64_t at = begin; at < end; ++at) {
      entry(stored_.storage == Storage::coordinates ? order_[static_cast<std::size_t>(at)] : at, inner, f);
    }
  }

  /// f(row, column, number of the value) for all that is stored.
  template <class F>
  void all(F f) const {
    if (stored_.storage != Storage::coordinates) {
      for (std::int64_t i = 0; i < stored_.rows; ++i)
        row(i, [&](std::int64_t j, std::int64_t at) { f(i, j, at); });
      return;
    }
    for (std::int64_t at = 0; at < stored_.entries; ++at) {
      const std::int64_t r = row_of(at);
      for (std::int64_t inner = 0; inner < stored_.block_rows; ++inner)
        entry(at, inner,
              [&](std::int64_t j, std::int64_t value) { f(r * stored_.block_rows + inner, j, value); });
    }
  }

  /// Finds the entries of each row where only each entry's row is stored: before `row` is called.
  void find_rows() {
    if (stored_.storage != Storage::coordinates) return;
    starts_.assign(static_cast<std::size_t>(stored_.rows / stored_.block_rows) + 1, 0);
    order_.resize(static_cast<std::size_t>(stored_.entries));
    std::vector<std::int64_t> rows(order_.size());
    for (std::int64_t at = 0; at < stored_.entries; ++at) {
      rows[static_cast<std::size_t>(at)] = row_of(at);
      ++starts_[static_cast<std::size_t>(rows[static_cast<std::size_t>(at)]) + 1];
    }
    for (std::size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
    std::vector<std::int64_t> next(starts_);
    for (std::size_t at = 0; at < rows.size(); ++at)
      order_[static_cast<std::size_t>(next[static_cast<std::size_t>(rows[at])]++)] =
          static_cast<std::int64_t>(at);
  }

 private:
  std::int64_t row_of(std::int64_t at) const {
    const std::int64_t r = offsets_[at];
    if (r < 0 || r >= stored_.rows / stored_.block_rows) outside(what_);
    return r;
  }

  template <class F>
  void entry(std::int64_t at, std::int64_t inner, F f) const {
    const std::int64_t column = indices_[at];
    if (column < 0 && stored_.storage == Storage::padded) return;
    if (column < 0 || column >= stored_.columns / stored_.block_columns) outside(what_);
    if (block_ == 1) {
      f(column, at);
      return;
    }
    for (std::int64_t j = 0; j < stored_.block_columns; ++j) {
      const std::int64_t place =
          stored_.blocks_by_column ? j * stored_.block_rows + inner : inner * stored_.block_columns + j;
      f(column * stored_.block_columns + j, at * block_ + place);
    }
  }

  Sparse stored_;
  const char* what_;
  std::int64_t block_, width_ = 0;
  bool valued_;
  Indices offsets_, indices_;
  Values<N> values_;
  std::vector<std::int64_t> starts_, order_;
};

}  // namespace softgpu::libraries
