// The matrices of a product as they lie in memory, and the tiles of D that are computed one after another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libraries/operations/gemm.h"
#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

/// A tile: rows [i, i + m) and columns [j, j + n) of D of one batch.
struct Tile {
  std::int64_t i, j, m, n, batch;

  /// f(row, column, number) for each number of the tile, by its place in it. They lie in column order.
  template <class N, class F>
  void each(std::vector<N>& numbers, F f) const {
    for (std::int64_t column = 0; column < n; ++column) {
      for (std::int64_t row = 0; row < m; ++row)
        f(row, column, numbers[static_cast<std::size_t>(column * m + row)]);
    }
  }
};

/// The tile of a part, or the first one of a part that has all columns of its rows.
inline Tile tile_of(const gpupool::operations::Gemm& op, std::uint64_t part) {
  const auto tiles_m = static_cast<std::uint64_t>(op.tiles_m()),
             tiles_n = static_cast<std::uint64_t>(op.tiles_n());
  Tile tile{};
  tile.i = static_cast<std::int64_t>(part % tiles_m) * op.tile_rows();
  tile.j = static_cast<std::int64_t>(part / tiles_m % tiles_n) * op.tile();
  tile.batch = static_cast<std::int64_t>(part / (tiles_m * tiles_n));
  tile.m = std::min(op.tile_rows(), op.m - tile.i);
  tile.n = std::min(op.tile(), op.n - tile.j);
  return tile;
}

/// One batch's matrix as it lies in memory: `rows` × `columns` in column order, and how it is read.
struct Stored {
  std::uint64_t address;
  std::int64_t leading;
  std::size_t bytes;  // of an element
  Trans trans;

  [[nodiscard]] bool turned() const {
    return trans == Trans::transpose || trans == Trans::conjugate_transpose;
  }
  /// Where element (row, column) of op(matrix) lies.
  [[nodiscard]] std::uint64_t at(std::int64_t row, std::int64_t column) const {
    if (turned()) std::swap(row, column);
    // Nothing is there where the matrix is empty: then `leading` may be any number.
    return address + (static_cast<std::uint64_t>(row) +
                      static_cast<std::uint64_t>(column) * static_cast<std::uint64_t>(leading)) *
                         bytes;
  }
};

inline Trans trans_of(gpupool::operations::Transpose transpose, bool by_row) {
  using gpupool::operations::Transpose;
  switch (transpose) {
    case Transpose::none:
      return by_row ? Trans::transpose : Trans::none;
    case Transpose::transpose:
      return by_row ? Trans::none : Trans::transpose;
    case Transpose::conjugate:
      return by_row ? Trans::conjugate : Trans::conjugate_transpose;
  }
  throw Failure(softgpu::Fault::illegal_instruction, "no such kind of transposition");
}

/// `rows` × `columns`: of op(matrix). Everything that the whole operation reads of it is checked.
/// `may_repeat`: the distance of its columns may be 0, so that all are one.
inline Stored stored(const gpupool::operations::Matrix& matrix, gpupool::operations::Transpose transpose,
                     std::int64_t rows, std::int64_t columns, std::int64_t batch, const Memory& memory,
                     const char* what, bool may_repeat = false) {
  Stored result{matrix.address, matrix.leading, gpupool::operations::bytes_of(matrix.type),
                trans_of(transpose, matrix.by_row)};
  if (result.bytes == 0)
    throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": unknown type");
  if (rows <= 0 || columns <= 0) return result;  // nothing is read, an array of addresses neither
  if (matrix.pointers) {
    result.address =
        *memory.at<std::uint64_t>(matrix.address + static_cast<std::uint64_t>(batch) * 8, 1, what);
  } else {
    result.address +=
        static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(matrix.stride) * result.bytes;
  }
  if (result.turned()) std::swap(rows, columns);
  const bool repeats = may_repeat && matrix.leading == 0;
  if (matrix.leading < rows && !repeats)
    throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": rows overlap");
  memory.check_rows(result.address, rows, columns, matrix.leading, result.bytes, what);
  return result;
}

/// A factor of a narrow type; without an address it is 1.
inline float scale_at(std::uint64_t address, const Memory& memory, const char* what) {
  return address == 0 ? 1.0F : *memory.at<float>(address, 1, what);
}

}  // namespace softgpu::libraries
