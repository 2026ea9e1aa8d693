// Sparse matrices as cuSPARSE stores them, all in one form: compressed, by coordinates, of blocks,
// transposed.
#pragma once

#include <cstdint>

#include "libraries/operations/element.h"

namespace gpupool::operations {

/// The numbers of cusparseIndexType_t.
enum class Index : std::uint8_t { i32 = 2, i64 = 3 };

constexpr std::size_t bytes_of(Index type) {
  return type == Index::i64 ? 8 : 4;
}

/// How it is known where the entries of a row are.
enum class Storage : std::uint8_t {
  compressed = 0,   // `offsets` has one more than there are rows
  coordinates = 1,  // `offsets` has the row of each entry
  padded = 2,       // each row has as many; an entry whose column is none is not there
};

/// Stored as rows × columns; the matrix that is meant is the transposed one where `turned`. So CSC is the
/// turned matrix of CSR. An entry is a block of block_rows × block_columns values (one value, if it is no
/// matrix of blocks), and rows and columns count values.
struct Sparse {
  std::uint64_t offsets = 0, indices = 0, values = 0;
  std::int64_t rows = 0, columns = 0, entries = 0;
  std::int64_t block_rows = 1, block_columns = 1;
  /// How far the matrices of a batch lie apart, in elements.
  std::int64_t offsets_stride = 0, indices_stride = 0, values_stride = 0;
  Storage storage = Storage::compressed;
  Index offset_type = Index::i32, index_type = Index::i32;
  Element type = Element::f32;
  std::uint8_t base = 0;  // what the first row and column are called
  Flag turned = false, conjugated = false;
  Flag blocks_by_column = false;  // the values of a block lie in column order
};

}  // namespace gpupool::operations
