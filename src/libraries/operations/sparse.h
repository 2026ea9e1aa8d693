// Sparse matrices, and what is computed with them: cuSPARSE's generic functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/dense.h"
#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/scalar.h"
#include "libraries/operations/view.h"

namespace gpupool::operations {

/// The numbers of cusparseFormat_t.
enum class SparseFormat : std::uint8_t { by_rows = 1, by_columns = 2, coordinates = 3 };

/// The numbers of cusparseIndexType_t.
enum class IndexType : std::uint8_t { i32 = 2, i64 = 3 };

/// One whose entries lie by rows, by columns, or each with its place. What is counted counts from `base` on.
struct SparseMatrix {
  /// Where the entries of each row (column) begin, and the end of the last; of coordinates: each entry's row.
  std::uint64_t offsets = 0;
  std::uint64_t indices = 0;  // each entry's column (row)
  std::uint64_t values = 0;
  std::int64_t rows = 0, columns = 0, entries = 0;
  /// How many elements the batches' offsets, and their indices and values, are apart.
  std::int64_t offsets_stride = 0, stride = 0;
  Element type = Element::f32;
  SparseFormat format = SparseFormat::by_rows;
  IndexType offset_type = IndexType::i32, index_type = IndexType::i32;
  std::uint8_t base = 0;
  std::uint8_t reserved[3] = {};

  [[nodiscard]] std::int64_t majors() const { return format == SparseFormat::by_columns ? columns : rows; }
  [[nodiscard]] std::int64_t minors() const { return format == SparseFormat::by_columns ? rows : columns; }
  [[nodiscard]] bool has_sizes() const { return are_sizes({rows, columns, entries}); }
  /// How many rows (columns) together have about `work` entries.
  [[nodiscard]] std::int64_t majors_of(std::int64_t work) const {
    return std::max<std::int64_t>(1, work / (entries / std::max<std::int64_t>(majors(), 1) + 1));
  }
};

/// C = alpha · op(A) · B + beta · C for a sparse A; C has n columns.
struct SparseProduct {
  static constexpr const char* name = "cusparse_product";
  SparseMatrix a;
  View b, c;
  std::int64_t n = 0, batch = 1;
  Factor alpha, beta;
  Element sum = Element::f32;  // what products are added up in
  Transpose transpose = Transpose::none;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] std::int64_t m() const { return transpose == Transpose::none ? a.rows : a.columns; }
  [[nodiscard]] std::int64_t k() const { return transpose == Transpose::none ? a.columns : a.rows; }
  /// Whether what a row of C is made of lies together. Then parts have rows of C; otherwise a part walks all
  /// of A for some columns of C, so that no two parts write one element and sums have one order.
  [[nodiscard]] bool gathers() const {
    return a.format == (transpose == Transpose::none ? SparseFormat::by_rows : SparseFormat::by_columns);
  }
  [[nodiscard]] std::int64_t width() const {
    constexpr std::int64_t most = 64, work = 1 << 22;
    return gathers() ? most : std::clamp<std::int64_t>(work / (a.entries + m() + 1), 1, most);
  }
  [[nodiscard]] std::int64_t height() const {
    constexpr std::int64_t work = 1 << 19;
    return gathers() ? a.majors_of(work / std::clamp<std::int64_t>(n, 1, width())) : m();
  }
  [[nodiscard]] bool sound() const { return a.has_sizes() && are_sizes({n, batch}); }
  [[nodiscard]] std::uint64_t parts() const {
    return parts_of({pieces(m(), height()), pieces(n, width()), batch});
  }
};

/// C = alpha · (A · B where C has entries) + beta · C for a sparse C by rows or columns, with k terms.
struct SparseSample {
  static constexpr const char* name = "cusparse_sample";
  SparseMatrix c;
  View a, b;
  std::int64_t k = 0, batch = 1;
  Factor alpha, beta;
  Element sum = Element::f32;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] std::int64_t height() const { return c.majors_of((1 << 20) / (k + 1)); }
  [[nodiscard]] bool sound() const { return c.has_sizes() && are_sizes({k, batch}); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(c.majors(), height()), batch}); }
};

/// C = alpha · op(A)⁻¹ · B for a triangle A of a sparse matrix of order m; its other entries are not looked
/// at.
struct SparseSolve {
  static constexpr const char* name = "cusparse_solve";
  SparseMatrix a;
  View b, c;
  std::int64_t n = 0;  // columns of B
  Factor alpha;
  Element sum = Element::f32;
  Transpose transpose = Transpose::none;
  Flag upper = false;
  Flag unit = false;  // ones on the diagonal, which are not read
  std::uint8_t reserved[4] = {};

  /// Columns that one part solves.
  [[nodiscard]] std::int64_t width() const {
    return std::clamp<std::int64_t>((1 << 22) / (a.entries + a.rows + 1), 1, 64);
  }
  [[nodiscard]] bool sound() const { return a.has_sizes() && are_sizes({n}); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(n, width())}); }
};

/// The dense B = the sparse A.
struct SparseToDense {
  static constexpr const char* name = "cusparse_to_dense";
  SparseMatrix a;
  View b;

  [[nodiscard]] bool sound() const { return a.has_sizes(); }
  /// Rows or columns that a part has, as A lies; of coordinates one part has all.
  [[nodiscard]] std::int64_t height() const {
    return a.format == SparseFormat::coordinates ? std::max<std::int64_t>(a.rows, 1)
                                                 : std::max<std::int64_t>(1, (1 << 20) / (a.minors() + 1));
  }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(a.majors(), height())}); }
};

/// What is done with 32-bit indices.
enum class OnIndices : std::uint8_t {
  compress = 0,  // offsets of m rows, of the entries' rows in order
  expand = 1,    // the entries' rows, of offsets of m rows
  count = 2,     // 0, 1, 2, ... in `permutation`
  sort = 3,      // entries by `rows`, then `columns`
  sort_in_rows = 4,
};

struct SparseIndices {
  static constexpr const char* name = "cusparse_indices";
  std::uint64_t offsets = 0, rows = 0, columns = 0;
  std::uint64_t permutation = 0;  // is exchanged with what is sorted; 0: none
  std::int64_t m = 0, entries = 0;
  OnIndices what = OnIndices::compress;
  std::uint8_t base = 0;
  std::uint8_t reserved[6] = {};

  static constexpr std::int64_t step = 1 << 16;  // that a part makes
  [[nodiscard]] std::int64_t height() const {
    return std::max<std::int64_t>(1, step / (entries / std::max<std::int64_t>(m, 1) + 1));
  }
  [[nodiscard]] bool sound() const { return are_sizes({m, entries}); }
  [[nodiscard]] std::uint64_t parts() const {
    switch (what) {
      case OnIndices::compress:
        return parts_of({pieces(m + 1, step)});
      case OnIndices::sort:
        return 1;
      case OnIndices::sort_in_rows:
        return parts_of({pieces(m, height())});
      default:
        return parts_of({pieces(entries, step)});
    }
  }
};

}  // namespace gpupool::operations
