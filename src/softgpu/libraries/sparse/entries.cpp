#include "softgpu/libraries/sparse/entries.h"

namespace softgpu::libraries {
namespace {

std::uint64_t bytes_of(IndexType type, const char* what) {
  if (type != IndexType::i32 && type != IndexType::i64) wrong(std::string(what) + ": no such indices");
  return type == IndexType::i64 ? 8 : 4;
}

/// Where the batch's own array begins.
std::uint64_t begin_of(std::uint64_t address, std::int64_t batch, std::int64_t stride, std::uint64_t bytes) {
  return address + static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(stride) * bytes;
}

std::int64_t count_of_offsets(const SparseMatrix& matrix) {
  return matrix.format == SparseFormat::coordinates ? matrix.entries : matrix.majors() + 1;
}

std::int64_t offsets_stride(const SparseMatrix& matrix) {
  return matrix.format == SparseFormat::coordinates ? matrix.stride : matrix.offsets_stride;
}

/// A matrix that can be looked at.
const SparseMatrix& sensible(const SparseMatrix& matrix, const char* what) {
  const bool fits = matrix.format >= SparseFormat::by_rows && matrix.format <= SparseFormat::coordinates &&
                    matrix.base <= 1 && matrix.has_sizes() && gpupool::operations::bytes_of(matrix.type) != 0;
  if (!fits) wrong(std::string(what) + " is no sparse matrix");
  return matrix;
}

}  // namespace

Indices::Indices(std::uint64_t address, std::int64_t count, IndexType type, const Memory& memory,
                 const char* what)
    : address_(address), wide_(type == IndexType::i64) {
  memory.check(address, static_cast<std::uint64_t>(count), bytes_of(type, what), what);
}

Entries::Entries(const SparseMatrix& matrix, std::int64_t batch, const Memory& memory, const char* what)
    : matrix_(sensible(matrix, what)),
      what_(what),
      offsets_(begin_of(matrix.offsets, batch, offsets_stride(matrix), bytes_of(matrix.offset_type, what)),
               count_of_offsets(matrix), matrix.offset_type, memory, what),
      indices_(begin_of(matrix.indices, batch, matrix.stride, bytes_of(matrix.index_type, what)),
               matrix.entries, matrix.index_type, memory, what),
      values_(begin_of(matrix.values, batch, matrix.stride, gpupool::operations::bytes_of(matrix.type))) {
  with_type(matrix.type, [&](auto type) {
    memory.check(values_, static_cast<std::uint64_t>(matrix.entries), sizeof type, what);
  });
}

View plain(const View& view, std::int64_t rows, std::int64_t columns, std::int64_t batch,
           const Memory& memory, const char* what) {
  constexpr auto all = gpupool::operations::all_diagonals;
  if (view.packed != Packed::no || view.structure != Structure::zero || view.unit || view.below != all ||
      view.above != all)
    wrong(std::string(what) + " is not a whole matrix");
  return located(view, rows, columns, batch, memory, what);
}

}  // namespace softgpu::libraries
