// Descriptors of sparse matrices: made, asked, changed.
#include <cstdint>
#include <cstring>
#include <memory>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;

namespace {

/// Of CSR: of CSC rows and columns are exchanged by the caller.
struct Description {
  int format;
  std::int64_t rows, columns, entries;
  const void *offsets, *indices, *values;
  int offset_type, index_type, base, type;
  std::int64_t block_rows = 1, block_columns = 1;
};

int create(void** into, const Description& from, std::int64_t padded_columns = 0, int order = by_row) {
  return guarded([&]() -> int {
    const bool fits = into != nullptr &&
                      gpupool::operations::are_sizes({from.rows, from.columns, from.entries}) &&
                      is_base(from.base) && is_index(from.offset_type) && is_index(from.index_type) &&
                      is_type(from.type) && from.block_rows > 0 && from.block_columns > 0 &&
                      from.block_rows <= 1 << 20 && from.block_columns <= 1 << 20;
    if (!fits) return invalid_value;
    auto made = std::make_unique<SpMat>();
    made->format = from.format;
    made->padded_columns = padded_columns;
    Sparse& stored = made->stored;
    stored.offsets = address(from.offsets);
    stored.indices = address(from.indices);
    stored.values = address(from.values);
    stored.rows = from.rows;
    stored.columns = from.columns;
    stored.entries = from.entries;
    stored.offset_type = static_cast<Index>(from.offset_type);
    stored.index_type = static_cast<Index>(from.index_type);
    stored.base = static_cast<std::uint8_t>(from.base);
    stored.type = static_cast<Element>(from.type);
    stored.block_rows = from.block_rows;
    stored.block_columns = from.block_columns;
    stored.blocks_by_column = order == by_column;
    stored.turned = from.format == csc;
    stored.storage = from.format == coo           ? Storage::coordinates
                     : from.format == blocked_ell ? Storage::padded
                                                  : Storage::compressed;
    *into = made.release();
    return success;
  });
}

/// The matrix, if it has one of these forms.
SpMat* of_form(const void* descriptor, int format) {
  SpMat* const found = known<SpMat>(descriptor);
  return found != nullptr && found->format == format ? found : nullptr;
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

template <class... T>
bool are_there(T*... places) {
  return ((places != nullptr) && ...);
}

int set_pointers(void* descriptor, int format, void* offsets, void* indices, void* values) {
  SpMat* const found = of_form(descriptor, format);
  if (found == nullptr) return invalid_value;
  found->stored.offsets = address(offsets);
  found->stored.indices = address(indices);
  found->stored.values = address(values);
  return success;
}

int set_batch(void* descriptor, int format, int batch, std::int64_t offsets, std::int64_t indices,
              std::int64_t values) {
  SpMat* const found = of_form(descriptor, format);
  if (found == nullptr || batch <= 0 || offsets < 0 || indices < 0 || values < 0) return invalid_value;
  found->batch = batch;
  found->stored.offsets_stride = offsets;
  found->stored.indices_stride = indices;
  found->stored.values_stride = values;
  return success;
}

int read_compressed(const void* descriptor, int format, std::int64_t* rows, std::int64_t* columns,
                    std::int64_t* entries, void** offsets, void** indices, void** values, int* offset_type,
                    int* index_type, int* base, int* type) {
  const SpMat* const found = of_form(descriptor, format);
  if (found == nullptr ||
      !are_there(rows, columns, entries, offsets, indices, values, offset_type, index_type, base, type))
    return invalid_value;
  *rows = found->rows();
  *columns = found->columns();
  *entries = found->stored.entries;
  *offsets = pointer(found->stored.offsets);
  *indices = pointer(found->stored.indices);
  *values = pointer(found->stored.values);
  *offset_type = static_cast<int>(found->stored.offset_type);
  *index_type = static_cast<int>(found->stored.index_type);
  *base = found->stored.base;
  *type = static_cast<int>(found->stored.type);
  return success;
}

/// Reads or writes one field.
template <class F>
int with_matrix(const void* descriptor, const void* place, F f) {
  SpMat* const found = known<SpMat>(descriptor);
  if (found == nullptr || place == nullptr) return invalid_value;
  f(*found);
  return success;
}

int* attribute_of(SpMat& matrix, int attribute) {
  return attribute == 0 ? &matrix.fill : attribute == 1 ? &matrix.diagonal : nullptr;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreateCsr(void** matrix, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, void* offsets, void* indices, void* values,
                                             int offset_type, int index_type, int base, int type) {
  return create(matrix,
                {csr, rows, columns, entries, offsets, indices, values, offset_type, index_type, base, type});
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstCsr, cusparseCreateCsr);

GPUPOOL_LIBRARY_EXPORT int cusparseCreateCsc(void** matrix, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, void* offsets, void* indices, void* values,
                                             int offset_type, int index_type, int base, int type) {
  return create(matrix,
                {csc, columns, rows, entries, offsets, indices, values, offset_type, index_type, base, type});
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstCsc, cusparseCreateCsc);

GPUPOOL_LIBRARY_EXPORT int cusparseCreateCoo(void** matrix, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, void* row_indices, void* indices,
                                             void* values, int index_type, int base, int type) {
  return create(matrix, {coo, rows, columns, entries, row_indices, indices, values, index_type, index_type,
                         base, type});
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstCoo, cusparseCreateCoo);

GPUPOOL_LIBRARY_EXPORT int cusparseCreateBsr(void** matrix, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, std::int64_t block_rows,
                                             std::int64_t block_columns, void* offsets, void* indices,
                                             void* values, int offset_type, int index_type, int base,
                                             int type, int order) {
  const bool fits = gpupool::operations::are_sizes({rows, columns, block_rows, block_columns}) &&
                    block_rows <= 1 << 20 && block_columns <= 1 << 20 &&
                    (order == by_row || order == by_column);
  if (!fits) return invalid_value;
  return create(matrix,
                {bsr, rows * block_rows, columns * block_columns, entries, offsets, indices, values,
                 offset_type, index_type, base, type, block_rows, block_columns},
                0, order);
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstBsr, cusparseCreateBsr);

GPUPOOL_LIBRARY_EXPORT int cusparseCreateBlockedEll(void** matrix, std::int64_t rows, std::int64_t columns,
                                                    std::int64_t block, std::int64_t padded_columns,
                                                    void* indices, void* values, int index_type, int base,
                                                    int type) {
  const bool fits = gpupool::operations::are_sizes({rows, columns, padded_columns}) && block > 0 &&
                    block <= 1 << 20 && rows % block == 0 && columns % block == 0 &&
                    padded_columns % block == 0;
  if (!fits || rows / block > (std::int64_t{1} << 31) || padded_columns / block > 1 << 20)
    return invalid_value;
  return create(matrix,
                {blocked_ell, rows, columns, rows / block * (padded_columns / block), nullptr, indices,
                 values, index_type, index_type, base, type, block, block},
                padded_columns);
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstBlockedEll, cusparseCreateBlockedEll);

GPUPOOL_LIBRARY_EXPORT int cusparseDestroySpMat(const void* matrix) {
  return destroy<SpMat>(matrix);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCsrGet(const void* matrix, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** offsets, void** indices,
                                          void** values, int* offset_type, int* index_type, int* base,
                                          int* type) {
  return read_compressed(matrix, csr, rows, columns, entries, offsets, indices, values, offset_type,
                         index_type, base, type);
}
GPUPOOL_SPARSE_CONST(cusparseConstCsrGet, cusparseCsrGet);

GPUPOOL_LIBRARY_EXPORT int cusparseCscGet(const void* matrix, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** offsets, void** indices,
                                          void** values, int* offset_type, int* index_type, int* base,
                                          int* type) {
  return read_compressed(matrix, csc, rows, columns, entries, offsets, indices, values, offset_type,
                         index_type, base, type);
}
GPUPOOL_SPARSE_CONST(cusparseConstCscGet, cusparseCscGet);

GPUPOOL_LIBRARY_EXPORT int cusparseCooGet(const void* matrix, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** row_indices, void** indices,
                                          void** values, int* index_type, int* base, int* type) {
  return read_compressed(matrix, coo, rows, columns, entries, row_indices, indices, values, index_type,
                         index_type, base, type);
}
GPUPOOL_SPARSE_CONST(cusparseConstCooGet, cusparseCooGet);

GPUPOOL_LIBRARY_EXPORT int cusparseBlockedEllGet(const void* matrix, std::int64_t* rows,
                                                 std::int64_t* columns, std::int64_t* block,
                                                 std::int64_t* padded_columns, void** indices, void** values,
                                                 int* index_type, int* base, int* type) {
  const SpMat* const found = of_form(matrix, blocked_ell);
  if (found == nullptr || !are_there(block, padded_columns)) return invalid_value;
  std::int64_t entries = 0;
  void* offsets = nullptr;
  *block = found->stored.block_rows;
  *padded_columns = found->padded_columns;
  return read_compressed(matrix, blocked_ell, rows, columns, &entries, &offsets, indices, values, index_type,
                         index_type, base, type);
}
GPUPOOL_SPARSE_CONST(cusparseConstBlockedEllGet, cusparseBlockedEllGet);

GPUPOOL_LIBRARY_EXPORT int cusparseCsrSetPointers(void* matrix, void* offsets, void* indices, void* values) {
  return set_pointers(matrix, csr, offsets, indices, values);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCscSetPointers(void* matrix, void* offsets, void* indices, void* values) {
  return set_pointers(matrix, csc, offsets, indices, values);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCooSetPointers(void* matrix, void* rows, void* indices, void* values) {
  return set_pointers(matrix, coo, rows, indices, values);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCsrSetStridedBatch(void* matrix, int batch, std::int64_t offsets,
                                                      std::int64_t others) {
  return set_batch(matrix, csr, batch, offsets, others, others);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCooSetStridedBatch(void* matrix, int batch, std::int64_t stride) {
  return set_batch(matrix, coo, batch, stride, stride, stride);
}
GPUPOOL_LIBRARY_EXPORT int cusparseBsrSetStridedBatch(void* matrix, int batch, std::int64_t offsets,
                                                      std::int64_t indices, std::int64_t values) {
  return set_batch(matrix, bsr, batch, offsets, indices, values);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetSize(const void* matrix, std::int64_t* rows, std::int64_t* columns,
                                                std::int64_t* entries) {
  const SpMat* const found = known<SpMat>(matrix);
  if (found == nullptr || !are_there(rows, columns, entries)) return invalid_value;
  *rows = found->rows();
  *columns = found->columns();
  *entries = found->stored.entries * found->stored.block_rows * found->stored.block_columns;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetFormat(const void* matrix, int* format) {
  return with_matrix(matrix, format, [&](const SpMat& found) { *format = found.format; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetIndexBase(const void* matrix, int* base) {
  return with_matrix(matrix, base, [&](const SpMat& found) { *base = found.stored.base; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetValues(const void* matrix, void** values) {
  return with_matrix(matrix, values, [&](const SpMat& found) { *values = pointer(found.stored.values); });
}
GPUPOOL_SPARSE_CONST(cusparseConstSpMatGetValues, cusparseSpMatGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatSetValues(void* matrix, void* values) {
  return with_matrix(matrix, matrix, [&](SpMat& found) { found.stored.values = address(values); });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetStridedBatch(const void* matrix, int* batch) {
  return with_matrix(matrix, batch, [&](const SpMat& found) { *batch = found.batch; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetAttribute(const void* matrix, int attribute, void* data,
                                                     std::size_t bytes) {
  SpMat* const found = known<SpMat>(matrix);
  if (found == nullptr || data == nullptr || bytes != sizeof(int)) return invalid_value;
  const int* const field = attribute_of(*found, attribute);
  if (field == nullptr) return invalid_value;
  std::memcpy(data, field, sizeof *field);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatSetAttribute(void* matrix, int attribute, const void* data,
                                                     std::size_t bytes) {
  SpMat* const found = known<SpMat>(matrix);
  if (found == nullptr || data == nullptr || bytes != sizeof(int)) return invalid_value;
  int* const field = attribute_of(*found, attribute);
  int value = 0;
  std::memcpy(&value, data, sizeof value);
  if (field == nullptr || value < 0 || value > 1) return invalid_value;
  *field = value;
  return success;
}
