// Matrices as BLAS stores them, all in one form: whole, triangular, symmetric, in a band, packed, transposed.
#pragma once

#include <cstdint>

#include "libraries/operations/element.h"

namespace gpupool::operations {

/// What a matrix is where it is not stored.
enum class Structure : std::uint8_t { zero = 0, symmetric = 1, hermitian = 2 };

/// Triangles whose columns lie without gaps.
enum class Packed : std::uint8_t { no = 0, upper = 1, lower = 2 };

/// More diagonals than any matrix has: all are stored.
inline constexpr std::int64_t all_diagonals = std::int64_t{1} << 48;

/// Element (i, j) lies `i * row + j * column` elements behind the address. So a transposed matrix is one with
/// the two exchanged, a vector is a matrix of one column, and a band, whose columns are one shorter than they
/// lie apart, has `column` = ld - 1. It is stored where `-above <= i - j <= below`: a triangle has 0 for one
/// of them. Batches are `stride` elements apart, or (`pointers`) the address is that of an array of addresses
/// in device memory, which `offset` elements are added to.
struct View {
  std::uint64_t address = 0;
  std::int64_t row = 1, column = 0, stride = 0, offset = 0;
  std::int64_t below = all_diagonals, above = all_diagonals;
  Element type = Element::f32;
  Structure structure = Structure::zero;
  Packed packed = Packed::no;  // then `column` is the number of columns, and `row` is not used
  Flag turned = false;         // of a packed triangle: the matrix is the transposed one
  Flag unit = false;           // ones on the diagonal, which are not read
  Flag conjugated = false;
  Flag pointers = false;
  std::uint8_t reserved = 0;
};

}  // namespace gpupool::operations
