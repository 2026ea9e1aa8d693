#include "worker/libraries/sparse.h"

#include <algorithm>
#include <utility>

namespace gpupool::worker {

using operations::Element;
using operations::Factor;
using operations::Sparse;
using operations::View;

namespace {

/// cusparseStatus_t as a result of the driver.
CUresult result_of_cusparse(int status) {
  switch (status) {
    case 0:
      return CUDA_SUCCESS;
    case SparseLibrary::alloc_failed:
    case 11:  // INSUFFICIENT_RESOURCES
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 3:  // INVALID_VALUE
      return CUDA_ERROR_INVALID_VALUE;
    case 1:  // NOT_INITIALIZED: it did not start; ARCH_MISMATCH, MATRIX_TYPE_NOT_SUPPORTED
    case 4:
    case 8:
    case SparseLibrary::not_supported:
    case Library::missing:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

/// What a dense matrix of cuSPARSE has no words for.
bool is_plain(const View& view) {
  return view.packed == operations::Packed::no && view.structure == operations::Structure::zero &&
         view.below == operations::all_diagonals && view.above == operations::all_diagonals &&
         view.unit == 0 && view.pointers == 0 && view.offset == 0;
}

bool has_blocks(const Sparse& of) {
  return of.block_rows != 1 || of.block_columns != 1;
}

}  // namespace

SparseLibrary::SparseLibrary(const Execution& x) : x_(x) {
  if (x.state.cusparse == nullptr) {
    const Preparation::Scope preparing(x.libraries.preparation);
    describe("Create", &x.state.cusparse);
  }
  call("SetStream", x.stream);
}

SparseLibrary::~SparseLibrary() {
  while (!made_.empty()) end_last();
}

void SparseLibrary::end_last() {
  if (made_.empty()) return;
  x_.libraries.cusparse.call("cusparse" + made_.back().destroy, made_.back().descriptor);
  made_.pop_back();
}

CUresult SparseLibrary::result() const {
  return status_ == 0 ? of_driver_ : result_of_cusparse(status_);
}

SparseLibrary::Matrix SparseLibrary::dense(const View& view, std::int64_t rows, std::int64_t columns,
                                           std::int64_t batch, int order) {
  std::int64_t row = view.row, column = view.column;
  if (!is_plain(view) || (row != 1 && column != 1) || row < 1 || column < 1) fail(not_supported);
  Matrix made;
  const auto turn = [&](int op) {
    made.op = op;
    std::swap(row, column);
    std::swap(rows, columns);
  };
  // Of one row or one column, both orders may be right.
  const auto lies_in = [&] { return row != 1 ? by_row : column == 1 && order != 0 ? order : by_column; };
  if (view.conjugated != 0 && operations::is_complex(view.type)) {
    turn(conjugated);
  } else if (order != 0 && lies_in() != order) {
    turn(transposed);
  }
  made.order = lies_in();
  const bool columns_first = made.order == by_column;
  const std::int64_t least = std::max<std::int64_t>(1, columns_first ? rows : columns);
  std::int64_t leading = columns_first ? column : row;
  if ((columns_first ? columns : rows) <= 1) leading = std::max(leading, least);
  made.descriptor = make("CreateDnMat", "DestroyDnMat", rows, columns, leading, pointer<void>(view.address),
                         static_cast<int>(view.type), made.order);
  if (batch > 1 && view.stride != 0)
    describe("DnMatSetStridedBatch", made.descriptor, narrow(batch), view.stride);
  return made;
}

void* SparseLibrary::vector(const View& view, std::int64_t size) {
  if (!is_plain(view) || !is_sparse_vector(view)) fail(not_supported);
  return make("CreateDnVec", "DestroyDnVec", size, pointer<void>(view.address), static_cast<int>(view.type));
}

SparseLibrary::Matrix SparseLibrary::matrix(const Sparse& of, std::int64_t batch) {
  Matrix made;
  const bool conjugates = of.conjugated != 0 && operations::is_complex(of.type);
  made.op = of.turned == 0 ? plain : conjugates ? conjugated : transposed;
  const auto offset_type = static_cast<int>(of.offset_type), index_type = static_cast<int>(of.index_type),
             type = static_cast<int>(of.type), base = int{of.base};
  auto *const offsets = pointer<void>(of.offsets), *const indices = pointer<void>(of.indices),
              *const values = pointer<void>(of.values);
  const bool alone =
      batch <= 1 || (of.offsets_stride == 0 && of.indices_stride == 0 && of.values_stride == 0);
  const char* const destroy = "DestroySpMat";
  if (of.storage == operations::Storage::padded) {
    const std::int64_t block_rows = std::max<std::int64_t>(1, of.rows / of.block_rows);
    if (of.block_rows != of.block_columns || !alone || made.op != plain) fail(not_supported);
    made.descriptor = make("CreateBlockedEll", destroy, of.rows, of.columns, of.block_rows,
                           of.entries / block_rows * of.block_rows, indices, values, index_type, base, type);
  } else if (of.storage == operations::Storage::coordinates) {
    if (has_blocks(of) || of.offset_type != of.index_type || (conjugates && made.op == plain))
      fail(not_supported);
    made.descriptor = make("CreateCoo", destroy, of.rows, of.columns, of.entries, offsets, indices, values,
                           index_type, base, type);
    if (!alone) {
      if (of.values_stride != of.indices_stride || of.offsets_stride != of.indices_stride)
        fail(not_supported);
      describe("CooSetStridedBatch", made.descriptor, narrow(batch), of.indices_stride);
    }
  } else if (has_blocks(of)) {
    if (conjugates && made.op == plain) fail(not_supported);
    made.descriptor = make("CreateBsr", destroy, of.rows / of.block_rows, of.columns / of.block_columns,
                           of.entries, of.block_rows, of.block_columns, offsets, indices, values, offset_type,
                           index_type, base, type, of.blocks_by_column != 0 ? by_column : by_row);
    if (!alone)
      describe("BsrSetStridedBatch", made.descriptor, narrow(batch), of.offsets_stride, of.indices_stride,
               of.values_stride);
  } else {
    // Numbers that are conjugated where they lie are those of the columns of the conjugated transposed
    // matrix.
    const bool by_columns = conjugates && made.op == plain;
    if (by_columns) made.op = conjugated;
    made.descriptor = make(by_columns ? "CreateCsc" : "CreateCsr", destroy, by_columns ? of.columns : of.rows,
                           by_columns ? of.rows : of.columns, of.entries, offsets, indices, values,
                           offset_type, index_type, base, type);
    if (!alone) {
      if (of.values_stride != of.indices_stride) fail(not_supported);
      describe("CsrSetStridedBatch", made.descriptor, narrow(batch), of.offsets_stride, of.indices_stride);
    }
  }
  return made;
}

void* SparseLibrary::older(std::uint8_t base, bool upper, bool unit) {
  void* const made = make("CreateMatDescr", "DestroyMatDescr");
  describe("SetMatIndexBase", made, int{base});
  describe("SetMatFillMode", made, upper ? 1 : 0);
  describe("SetMatDiagType", made, unit ? 1 : 0);
  return made;
}

void SparseLibrary::factors(std::initializer_list<const Factor*> factors, Element computed) {
  const bool on_device = (*factors.begin())->on_device != 0;
  for (const Factor* const factor : factors) {
    if ((factor->on_device != 0) != on_device || factor->type != computed) fail(not_supported);
  }
  scalars_on_device(on_device);
}

}  // namespace gpupool::worker
