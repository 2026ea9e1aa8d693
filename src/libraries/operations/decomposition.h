// Factorisations, eigenvalues and singular values of dense matrices, and what is solved with them: cuSOLVER.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

/// What is done with each matrix of a batch. In brackets: LAPACK's name, whose storage and conventions all
/// have.
enum class Decomposing : std::uint8_t {
  cholesky = 0,              // A = L · Lᴴ or Uᴴ · U (potrf)
  cholesky_solve = 1,        // B = A⁻¹ · B (potrs)
  cholesky_inverse = 2,      // A = A⁻¹ (potri)
  lu = 3,                    // A = P · L · U, m × n (getrf)
  lu_solve = 4,              // B = op(A)⁻¹ · B (getrs)
  ldl = 5,                   // A = L · D · Lᵀ or U · D · Uᵀ (sytrf)
  ldl_solve = 6,             // B = A⁻¹ · B (sytrs)
  ldl_inverse = 7,           // A = A⁻¹ (sytri)
  triangle_inverse = 8,      // A = A⁻¹ (trtri)
  triangle_product = 9,      // A = U · Uᴴ or Lᴴ · L (lauum)
  exchange = 10,             // rows k up to columns of A, from 1 on, are exchanged (laswp)
  qr = 11,                   // A = Q · R, reflectors' factors in tau (geqrf)
  make_q = 12,               // A = the first n columns of Q, of k reflectors (orgqr)
  apply_q = 13,              // C = op(Q) · C or C · op(Q), C is m × n (ormqr)
  tridiagonal = 14,          // A = Q · T · Qᴴ, T's diagonals in values and beside (sytrd)
  tridiagonal_make_q = 15,   // (orgtr)
  tridiagonal_apply_q = 16,  // (ormtr)
  bidiagonal = 17,           // A = Q · B · Pᴴ (gebrd)
  bidiagonal_make_q = 18,    // or Pᴴ where `right` (orgbr)
  singular = 19,             // A = B · diag(values) · Cᴴ (gesdd, gesvd)
  hermitian_eigen = 20,      // A · x = values · x, vectors in A (syevd)
  general_eigen = 21,        // the same of any A: values, left vectors in B, right ones in C (geev)
  generalized_eigen = 22,    // A · x = values · B · x, or one of two others (sygvd)
  system = 23,               // C = A⁻¹ · B, A = P · L · U (gesv)
  least_squares = 24,        // C = the x of least |A · x - B|, A = Q · R (gels)
};
inline constexpr auto last_decomposing = Decomposing::least_squares;

/// Which singular vectors are wanted: none, the first min(m, n), all, or the first ones in A's place.
enum class Wanted : std::uint8_t { none = 0, first = 1, all = 2, in_place = 3 };

/// Matrices in column order, `stride` elements apart, or (`pointers`) `address` is that of an array of
/// addresses in device memory.
struct Placed {
  std::uint64_t address = 0;
  std::int64_t leading = 1, stride = 0;
  Flag pointers = false;
  std::uint8_t reserved[7] = {};
};

struct Decomposition {
  static constexpr const char* name = "cusolver_decomposition";
  static constexpr std::int64_t columns_of_a_part = 256;  // of solutions
  Placed a, b, c;
  Placed values;  // real numbers; of general_eigen, see `complex_values`
  Placed beside;  // real numbers beside a diagonal
  Placed tau, tau_right;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t columns = 0;  // of what is solved
  std::int64_t batch = 1;
  std::uint64_t pivots = 0;  // for each matrix as many as LAPACK has; 0: rows stay where they are
  std::uint64_t info = 0;    // a 32-bit number for each matrix; 0: it is not wanted
  std::uint64_t residuals =
      0;  // a double for each matrix: the norm of what singular values leave out; 0: none
  Decomposing what = Decomposing::cholesky;
  Element type = Element::f32;
  Flag upper = false, unit = false, right = false;
  std::uint8_t transpose = 0;  // cublasOperation_t
  std::uint8_t problem = 1;    // cusolverEigType_t
  Flag wide_pivots = false;    // 64-bit ones
  Flag one_info = false;       // of the whole batch
  Flag vectors = false;        // of eigenvalues
  Flag left_vectors = false;
  Flag complex_values = false;  // of a real matrix, else all real parts, then all imaginary ones
  Flag transposed_c = false;    // singular: C is Cᴴ
  Wanted left = Wanted::none, right_ones = Wanted::none;
  std::uint8_t reserved = 0;

  [[nodiscard]] bool sound() const { return are_sizes({m, n, k, columns, batch}); }
  [[nodiscard]] bool is_solution() const {
    return what == Decomposing::cholesky_solve || what == Decomposing::lu_solve ||
           what == Decomposing::ldl_solve;
  }
  /// Into how many pieces the columns of a solution are cut: other matrices are one.
  [[nodiscard]] std::int64_t pieces_of_each() const {
    return is_solution() ? std::max<std::int64_t>((columns + columns_of_a_part - 1) / columns_of_a_part, 1)
                         : 1;
  }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces_of_each(), batch}); }
};

}  // namespace gpupool::operations
