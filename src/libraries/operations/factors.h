// Factorisations of batches of matrices, and what is made of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/element.h"

namespace gpupool::operations {

/// What is done with each matrix of a batch.
enum class Factoring : std::uint8_t {
  lu = 0,             // A = L · U with rows exchanged (getrf); without pivots none is exchanged
  lu_solve = 1,       // B = op(A)⁻¹ · B, of A = L · U (getrs)
  lu_inverse = 2,     // B = A⁻¹, of A = L · U (getri)
  inverse = 3,        // B = A⁻¹ (matinv)
  qr = 4,             // A = Q · R, its reflectors' factors in B (geqrf)
  least_squares = 5,  // the first n rows of B = the x of least |A · x - B|, A = Q · R (gels)
};

/// Matrices in column order; `a` and `b` are the addresses of arrays of addresses in device memory.
struct Factors {
  static constexpr const char* name = "cublas_factors";
  std::uint64_t a = 0, b = 0;
  std::int64_t lda = 1, ldb = 1;
  std::int64_t m = 0, n = 0, columns = 0;  // A is m × n, B has so many columns
  std::int64_t batch = 0;
  std::uint64_t pivots = 0;  // n 32-bit numbers for each matrix; 0: rows stay where they are
  std::uint64_t info = 0;    // a 32-bit number for each matrix; 0: it is not wanted
  Factoring what = Factoring::lu;
  Element type = Element::f32;
  std::uint8_t transpose = 0;  // cublasOperation_t
  std::uint8_t reserved[5] = {};

  [[nodiscard]] std::uint64_t parts() const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(batch, 1));
  }
};

}  // namespace gpupool::operations
