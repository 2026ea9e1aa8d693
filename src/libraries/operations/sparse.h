// What is done with sparse matrices: most of cuSPARSE's functions are one of these.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/dense.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/scalar.h"
#include "libraries/operations/sparse_matrix.h"
#include "libraries/operations/view.h"

namespace gpupool::operations {

/// Whether the sizes of a sparse matrix can be computed with.
constexpr bool sound(const Sparse& matrix) {
  return are_sizes({matrix.rows, matrix.columns, matrix.entries, matrix.block_rows, matrix.block_columns}) &&
         matrix.block_rows > 0 && matrix.block_columns > 0 && matrix.block_rows <= 1 << 20 &&
         matrix.block_columns <= 1 << 20 && matrix.rows % matrix.block_rows == 0 &&
         matrix.columns % matrix.block_columns == 0;
}

/// How many rows of `matrix` (of blocks, where it is one of blocks) one part takes, when each entry costs
/// `cost`: by the shape alone.
constexpr std::int64_t rows_of_part(const Sparse& matrix, std::int64_t cost) {
  const auto rows = static_cast<double>(std::max<std::int64_t>(1, matrix.rows / matrix.block_rows));
  const double block = static_cast<double>(matrix.block_rows) * static_cast<double>(matrix.block_columns);
  const double row = static_cast<double>(matrix.entries) / rows * block * static_cast<double>(cost);
  return static_cast<std::int64_t>(std::clamp(4e6 / (row + 8), 1.0, 65536.0));
}

/// C = alpha · A · B + beta · C for a sparse A: m × n, with k terms.
struct SparseProduct {
  static constexpr const char* name = "cusparse_product";
  static constexpr std::int64_t columns = 64;  // of C that one part takes
  Sparse a;
  View b, c;
  std::int64_t n = 0, batch = 1;
  Factor alpha, beta;
  Element sum = Element::f32;
  std::uint8_t reserved[7] = {};

  /// Where rows of C are rows that A stores, parts are some of them. Elsewhere one part sees all of A.
  [[nodiscard]] bool by_rows() const { return !a.turned && a.storage != Storage::coordinates; }
  [[nodiscard]] std::int64_t rows_of_part() const {
    return operations::rows_of_part(a, std::min(std::max<std::int64_t>(n, 1), columns));
  }
  [[nodiscard]] std::int64_t parts_m() const {
    return by_rows() ? pieces(a.rows / a.block_rows, rows_of_part()) : 1;
  }
  [[nodiscard]] bool sound() const { return operations::sound(a) && are_sizes({n, batch}); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({parts_m(), pieces(n, columns), batch}); }
};

/// B = alpha · A⁻¹ · C for one triangle of a sparse A, n columns; entries of the other are not looked at.
struct SparseSolve {
  static constexpr const char* name = "cusparse_solve";
  static constexpr std::int64_t columns = 16;  // that one part solves
  Sparse a;
  View b, c;
  std::int64_t n = 0, batch = 1;
  Factor alpha;
  Element sum = Element::f32;
  Flag upper = false;  // of what is stored
  Flag unit = false;   // ones on the diagonal, which are not read
  std::uint8_t reserved[5] = {};
  /// Where the number of the first row (of blocks, from `a.base`) that has no pivot is put, or -1; 0: it is
  /// not wanted.
  std::uint64_t zero_pivot = 0;

  [[nodiscard]] bool sound() const { return operations::sound(a) && are_sizes({n, batch}); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(n, columns), batch}); }
};

enum class Entries : std::uint8_t {
  sampled = 0,  // S = alpha · (A · B where S has entries) + beta · S
  spread = 1,   // A = S, with zeros where it has none
};

/// Entries of a sparse matrix beside dense ones; k terms.
struct SparseEntries {
  static constexpr const char* name = "cusparse_entries";
  Sparse s;
  View a, b;
  std::int64_t k = 0, batch = 1;
  Factor alpha, beta;
  Element sum = Element::f32;
  Entries what = Entries::sampled;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] bool by_rows() const { return s.storage != Storage::coordinates; }
  [[nodiscard]] std::int64_t rows_of_part() const {
    return operations::rows_of_part(s, std::max<std::int64_t>(k, 1));
  }
  [[nodiscard]] std::int64_t parts_m() const {
    return by_rows() ? pieces(s.rows / s.block_rows, rows_of_part()) : 1;
  }
  [[nodiscard]] bool sound() const { return operations::sound(s) && are_sizes({k, batch}); }
  [[nodiscard]] std::uint64_t parts() const {
    return parts_of({std::max<std::int64_t>(1, parts_m()), batch});
  }
};

/// What a sparse matrix is made of.
enum class Making : std::uint8_t {
  product = 0,  // alpha · A · B
  sum = 1,      // alpha · A + beta · B
  dense = 2,    // what of a dense matrix is not zero
};

/// In steps, since nobody knows how large the result is: between them a program asks and makes room.
enum class MakingStep : std::uint8_t {
  count = 0,    // counts[i + 1] = how many entries row i has
  offsets = 1,  // counts: where the entries of each row begin
  fill = 2,     // the entries, and where C's rows begin
};

/// A sparse C: compressed, or by coordinates.
struct SparseMaking {
  static constexpr const char* name = "cusparse_making";
  Sparse a, b, c;
  View dense;
  Factor alpha, beta;
  std::uint64_t counts = 0;  // rows + 1 numbers of count_type, from `count_base`
  std::uint64_t total = 0;   // where `offsets` puts the 32-bit number of all entries; 0: it is not wanted
  Index count_type = Index::i64;
  std::uint8_t count_base = 0;
  Element sum = Element::f32;
  Making what = Making::product;
  MakingStep step = MakingStep::count;
  std::uint8_t reserved[3] = {};

  [[nodiscard]] std::int64_t rows_of_part() const {
    const auto cost = what == Making::product ? std::int64_t{64} : std::int64_t{4};
    return what == Making::dense ? std::clamp<std::int64_t>((1 << 20) / (c.columns + 1), 1, 65536)
                                 : operations::rows_of_part(a, cost);
  }
  [[nodiscard]] bool sound() const {
    return operations::sound(a) && operations::sound(b) && operations::sound(c);
  }
  [[nodiscard]] std::uint64_t parts() const {
    return step == MakingStep::offsets ? 1 : parts_of({pieces(c.rows, rows_of_part())});
  }
};

enum class Arrange : std::uint8_t {
  compress = 0,   // `to` = where rows begin, of the sorted rows in `rows` (coo2csr)
  expand = 1,     // `to` = the row of each entry, of where rows begin in `rows` (csr2coo)
  sort = 2,       // entries by row, then by column; `to` is arranged with them (coosort)
  sort_rows = 3,  // the columns of each row; `to` is arranged with them (csrsort)
  identity = 4,   // `to` = 0, 1, 2, …
  transpose = 5,  // CSR to CSC: `to`, `to_columns` and `to_values` of `rows`, `columns` and `values`
};

/// Work with 32-bit indices alone.
struct SparseArrange {
  static constexpr const char* name = "cusparse_arrange";
  std::uint64_t rows = 0, columns = 0, values = 0;
  std::uint64_t to = 0, to_columns = 0, to_values = 0;  // 0: not wanted
  std::int64_t m = 0, n = 0, entries = 0;
  Arrange what = Arrange::identity;
  Element type = Element::f32;
  std::uint8_t base = 0;
  std::uint8_t reserved[5] = {};

  [[nodiscard]] bool sound() const { return are_sizes({m, n, entries}); }
  [[nodiscard]] std::uint64_t parts() const { return 1; }
};

enum class Indexed : std::uint8_t {
  gather = 0,   // x = y where x has entries
  scatter = 1,  // y = x where x has entries
  axpby = 2,    // y = alpha · x + beta · y
  rotate = 3,   // x, y = alpha · x + beta · y, alpha · y - beta · x where x has entries
  dot = 4,      // result = the sum of x · y
};

/// A sparse vector x and a dense one y.
struct SparseVector {
  static constexpr const char* name = "cusparse_vector";
  std::uint64_t indices = 0, x = 0, y = 0, result = 0;
  std::int64_t size = 0, entries = 0;
  Factor alpha, beta;
  Element x_type = Element::f32, y_type = Element::f32, result_type = Element::f32, sum = Element::f32;
  Index index_type = Index::i32;
  std::uint8_t base = 0;
  Indexed what = Indexed::gather;
  Flag conjugated = false;  // x, of a dot

  [[nodiscard]] bool sound() const { return are_sizes({size, entries}); }
  [[nodiscard]] std::uint64_t parts() const { return 1; }
};

}  // namespace gpupool::operations
