// Systems of equations whose matrices are bands: one or two diagonals on each side of the main one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/dense.h"
#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {

/// How systems lie in memory, and which of cuSPARSE's functions it was.
enum class Banded : std::uint8_t {
  pivoting = 0,  // one matrix and n right-hand sides (gtsv2)
  as_it_is = 1,  // the same without exchanging rows (gtsv2_nopivot)
  strided = 2,   // `batch` systems with a right-hand side each, `stride` elements apart (gtsv2StridedBatch)
  interleaved = 3,  // the same, element by element (gtsvInterleavedBatch, gpsvInterleavedBatch)
};

/// B = A⁻¹ · B.
struct Bands {
  static constexpr const char* name = "cusparse_bands";
  static constexpr int most_diagonals = 5, main = 2;

  /// Element i is that of row i; from the second one below the main one to the second one above it. 0:
  /// absent.
  std::uint64_t diagonals[most_diagonals] = {};
  std::uint64_t b = 0;
  std::int64_t m = 0, n = 1, batch = 1;
  std::int64_t ldb = 1;     // between right-hand sides of one matrix
  std::int64_t stride = 0;  // between systems
  Element type = Element::f32;
  Banded how = Banded::pivoting;
  std::uint8_t algorithm = 0;  // a number of cuSPARSE's, of interleaved ones
  std::uint8_t reserved[5] = {};

  [[nodiscard]] bool sound() const {
    return are_sizes({m, n, batch, ldb, stride}) && how <= Banded::interleaved &&
           (how <= Banded::as_it_is ? batch == 1 : n == 1);
  }
  /// Solutions of one column.
  [[nodiscard]] std::int64_t solutions() const { return n * batch; }
  /// Of them, those of one part.
  [[nodiscard]] std::int64_t solutions_of_part() const {
    constexpr std::int64_t rows = 1 << 16, most = 1 << 12;
    return std::clamp<std::int64_t>(rows / std::max<std::int64_t>(m, 1), 1, most);
  }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(solutions(), solutions_of_part())}); }
};

}  // namespace gpupool::operations
