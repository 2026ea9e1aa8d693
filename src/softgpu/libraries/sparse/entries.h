// A sparse matrix in device memory. Where its entries lie, and which row and column they have, are numbers of
// the program's: each is read once and checked before anything is found with it.
#pragma once

#include <cstdint>
#include <string>

#include "libraries/operations/sparse.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {

using gpupool::operations::IndexType;
using gpupool::operations::SparseFormat;
using gpupool::operations::SparseMatrix;

/// An array of 32-bit or 64-bit numbers.
class Indices {
 public:
  Indices(std::uint64_t address, std::int64_t count, IndexType type, const Memory& memory, const char* what);

  /// Read once, whoever else writes there.
  std::int64_t operator[](std::int64_t at) const {
    if (wide_) return __atomic_load_n(reinterpret_cast<const std::int64_t*>(address_) + at, __ATOMIC_RELAXED);
    return __atomic_load_n(reinterpret_cast<const std::int32_t*>(address_) + at, __ATOMIC_RELAXED);
  }

 private:
  std::uint64_t address_;
  bool wide_;
};

/// One that counts from `base` on, as a number below `bound`. Ends the operation where it is none.
inline std::int64_t checked(std::int64_t number, std::int64_t base, std::int64_t bound, const char* what) {
  const std::uint64_t found = static_cast<std::uint64_t>(number) - static_cast<std::uint64_t>(base);
  if (found >= static_cast<std::uint64_t>(bound)) [[unlikely]]
    throw Failure(softgpu::Fault::illegal_address,
                  std::string(what) + ": " + std::to_string(number) + " lies outside of the matrix");
  return static_cast<std::int64_t>(found);
}

/// All entries of one batch's matrix.
class Entries {
 public:
  Entries(const SparseMatrix& matrix, std::int64_t batch, const Memory& memory, const char* what);

  /// f(row, column, entry) for the entries of rows (columns) [begin, end) of a matrix that lies by them, in
  /// their order. Of coordinates: for all of them.
  template <class F>
  void each(std::int64_t begin, std::int64_t end, F f) const {
    if (matrix_.format == SparseFormat::coordinates) {
      for (std::int64_t i = 0; i < matrix_.entries; ++i)
        f(checked(offsets_[i], matrix_.base, matrix_.rows, what_), minor(i), i);
      return;
    }
    for (std::int64_t major = begin; major < end; ++major) {
      const std::int64_t first = offset(major), last = offset(major + 1);
      for (std::int64_t i = first; i < last; ++i) {
        if (matrix_.format == SparseFormat::by_rows) {
          f(major, minor(i), i);
        } else {
          f(minor(i), major, i);
        }
      }
    }
  }
  template <class F>
  void each(F f) const {
    each(0, matrix_.majors(), f);
  }

  /// Where the entries of a row (column) begin.
  [[nodiscard]] std::int64_t offset(std::int64_t major) const {
    return checked(offsets_[major], matrix_.base, matrix_.entries + 1, what_);
  }
  [[nodiscard]] std::int64_t minor(std::int64_t entry) const {
    return checked(indices_[entry], matrix_.base, matrix_.minors(), what_);
  }

  template <class N>
  [[nodiscard]] N value(std::int64_t entry) const {
    if (matrix_.type == element_of<N>) return reinterpret_cast<const N*>(values_)[entry];
    N result{};
    with_type(matrix_.type, [&](auto type) {
      result = to_number<N>(reinterpret_cast<const decltype(type)*>(values_)[entry]);
    });
    return result;
  }
  template <class N>
  void set_value(std::int64_t entry, N value) const {
    with_type(matrix_.type, [&](auto type) {
      using T = decltype(type);
      reinterpret_cast<T*>(values_)[entry] = to_element<T>(value);
    });
  }

 private:
  const SparseMatrix& matrix_;
  const char* what_;
  Indices offsets_, indices_;
  std::uint64_t values_;
};

/// A whole matrix of one batch, of which the rows and columns are all that is said: located and checked.
View plain(const View& view, std::int64_t rows, std::int64_t columns, std::int64_t batch,
           const Memory& memory, const char* what);

}  // namespace softgpu::libraries
