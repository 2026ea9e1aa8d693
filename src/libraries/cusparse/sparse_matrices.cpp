// Descriptors of sparse matrices. No message.
#include <cstring>

#include "libraries/cusparse/objects.h"
#include "libraries/operations/sparse.h"

using namespace gpupool::cusparse;
using gpupool::operations::IndexType;
using gpupool::operations::SparseFormat;

namespace {

bool is_index(int type) {
  return type == static_cast<int>(IndexType::i32) || type == static_cast<int>(IndexType::i64);
}

struct Shape {
  std::int64_t rows, columns, entries;
};
/// The arrays: offsets, or rows; indices; values.
struct Arrays {
  const void *offsets, *indices, *values;
};
struct Kinds {
  int offsets, indices, base, type;
};

int create(void** made, SparseFormat format, const Shape& shape, const Arrays& arrays, const Kinds& kinds) {
  return guarded([&] {
    if (made == nullptr || shape.rows < 0 || shape.columns < 0 || shape.entries < 0 || !is_base(kinds.base))
      return invalid_value;
    // A matrix without entries needs no arrays yet: a product of sparse ones is made before they are.
    if (shape.entries > 0 && !all_there(arrays.offsets, arrays.indices, arrays.values)) return invalid_value;
    if (!is_index(kinds.offsets) || !is_index(kinds.indices) || !is_carried(kinds.type)) return not_supported;
    auto* const found = new Sparse;
    auto& matrix = found->matrix;
    matrix.format = format;
    matrix.rows = shape.rows;
    matrix.columns = shape.columns;
    matrix.entries = shape.entries;
    matrix.offsets = address(arrays.offsets);
    matrix.indices = address(arrays.indices);
    matrix.values = address(arrays.values);
    matrix.offset_type = static_cast<IndexType>(kinds.offsets);
    matrix.index_type = static_cast<IndexType>(kinds.indices);
    matrix.base = static_cast<std::uint8_t>(kinds.base);
    matrix.type = static_cast<Element>(kinds.type);
    *made = found;
    return success;
  });
}

template <class F>
int with_format(const void* descriptor, SparseFormat format, F f) {
  return with<Sparse>(descriptor, [&](Sparse& found) {
    if (found.matrix.format != format) return invalid_value;
    return f(found);
  });
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

/// All that a matrix by rows or columns was made with; `offsets_type` is null for coordinates.
int get(const void* descriptor, SparseFormat format, std::int64_t* rows, std::int64_t* columns,
        std::int64_t* entries, void** offsets, void** indices, void** values, int* offsets_type,
        int* indices_type, int* base, int* type) {
  return with_format(descriptor, format, [&](const Sparse& found) {
    if (!all_there(rows, columns, entries, offsets, indices, values, indices_type, base, type) ||
        (format != SparseFormat::coordinates && offsets_type == nullptr))
      return invalid_value;
    const auto& matrix = found.matrix;
    *rows = matrix.rows;
    *columns = matrix.columns;
    *entries = matrix.entries;
    *offsets = pointer(matrix.offsets);
    *indices = pointer(matrix.indices);
    *values = pointer(matrix.values);
    if (offsets_type != nullptr) *offsets_type = static_cast<int>(matrix.offset_type);
    *indices_type = static_cast<int>(matrix.index_type);
    *base = matrix.base;
    *type = static_cast<int>(matrix.type);
    return success;
  });
}

int set_pointers(void* descriptor, SparseFormat format, const Arrays& arrays) {
  return with_format(descriptor, format, [&](Sparse& found) {
    if (!all_there(arrays.offsets, arrays.indices, arrays.values)) return invalid_value;
    found.matrix.offsets = address(arrays.offsets);
    found.matrix.indices = address(arrays.indices);
    found.matrix.values = address(arrays.values);
    return success;
  });
}

int set_batch(void* descriptor, SparseFormat format, int count, std::int64_t offsets_stride,
              std::int64_t stride) {
  return with_format(descriptor, format, [&](Sparse& found) {
    if (count <= 0 || offsets_stride < 0 || stride < 0) return invalid_value;
    found.batch = count;
    found.matrix.offsets_stride = offsets_stride;
    found.matrix.stride = stride;
    return success;
  });
}

/// The field of an attribute (cusparseSpMatAttribute_t), or null.
int* attribute_of(Sparse& matrix, int attribute, const void* data, std::size_t bytes) {
  if (data == nullptr || bytes != sizeof(int)) return nullptr;
  return attribute == 0 ? &matrix.upper : attribute == 1 ? &matrix.unit : nullptr;
}

/// One thing that a matrix says.
template <class T, class F>
int read(const void* descriptor, T* into, F f) {
  return with<Sparse>(descriptor, [&](const Sparse& found) {
    if (into == nullptr) return invalid_value;
    *into = f(found);
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreateCsr(void** made, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, const void* offsets, const void* indices,
                                             const void* values, int offsets_type, int indices_type, int base,
                                             int type) {
  return create(made, SparseFormat::by_rows, {rows, columns, entries}, {offsets, indices, values},
                {offsets_type, indices_type, base, type});
}
GPUPOOL_CUSPARSE_ALSO(cusparseCreateConstCsr, cusparseCreateCsr);
GPUPOOL_LIBRARY_EXPORT int cusparseCreateCsc(void** made, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, const void* offsets, const void* indices,
                                             const void* values, int offsets_type, int indices_type, int base,
                                             int type) {
  return create(made, SparseFormat::by_columns, {rows, columns, entries}, {offsets, indices, values},
                {offsets_type, indices_type, base, type});
}
GPUPOOL_CUSPARSE_ALSO(cusparseCreateConstCsc, cusparseCreateCsc);
GPUPOOL_LIBRARY_EXPORT int cusparseCreateCoo(void** made, std::int64_t rows, std::int64_t columns,
                                             std::int64_t entries, const void* row_indices,
                                             const void* column_indices, const void* values, int indices_type,
                                             int base, int type) {
  return create(made, SparseFormat::coordinates, {rows, columns, entries},
                {row_indices, column_indices, values}, {indices_type, indices_type, base, type});
}
GPUPOOL_CUSPARSE_ALSO(cusparseCreateConstCoo, cusparseCreateCoo);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroySpMat(const void* descriptor) {
  return destroy<Sparse>(descriptor);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCsrGet(const void* descriptor, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** offsets, void** indices,
                                          void** values, int* offsets_type, int* indices_type, int* base,
                                          int* type) {
  return get(descriptor, SparseFormat::by_rows, rows, columns, entries, offsets, indices, values,
             offsets_type, indices_type, base, type);
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstCsrGet, cusparseCsrGet);
GPUPOOL_LIBRARY_EXPORT int cusparseCscGet(const void* descriptor, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** offsets, void** indices,
                                          void** values, int* offsets_type, int* indices_type, int* base,
                                          int* type) {
  return get(descriptor, SparseFormat::by_columns, rows, columns, entries, offsets, indices, values,
             offsets_type, indices_type, base, type);
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstCscGet, cusparseCscGet);
GPUPOOL_LIBRARY_EXPORT int cusparseCooGet(const void* descriptor, std::int64_t* rows, std::int64_t* columns,
                                          std::int64_t* entries, void** row_indices, void** column_indices,
                                          void** values, int* indices_type, int* base, int* type) {
  return get(descriptor, SparseFormat::coordinates, rows, columns, entries, row_indices, column_indices,
             values, nullptr, indices_type, base, type);
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstCooGet, cusparseCooGet);

GPUPOOL_LIBRARY_EXPORT int cusparseCsrSetPointers(void* descriptor, void* offsets, void* indices,
                                                  void* values) {
  return set_pointers(descriptor, SparseFormat::by_rows, {offsets, indices, values});
}
GPUPOOL_LIBRARY_EXPORT int cusparseCscSetPointers(void* descriptor, void* offsets, void* indices,
                                                  void* values) {
  return set_pointers(descriptor, SparseFormat::by_columns, {offsets, indices, values});
}
GPUPOOL_LIBRARY_EXPORT int cusparseCooSetPointers(void* descriptor, void* rows, void* columns, void* values) {
  return set_pointers(descriptor, SparseFormat::coordinates, {rows, columns, values});
}
GPUPOOL_LIBRARY_EXPORT int cusparseCsrSetStridedBatch(void* descriptor, int count, std::int64_t offsets,
                                                      std::int64_t entries) {
  return set_batch(descriptor, SparseFormat::by_rows, count, offsets, entries);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCooSetStridedBatch(void* descriptor, int count, std::int64_t entries) {
  return set_batch(descriptor, SparseFormat::coordinates, count, 0, entries);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetStridedBatch(const void* descriptor, int* count) {
  return read(descriptor, count, [](const Sparse& found) { return found.batch; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetFormat(const void* descriptor, int* format) {
  return read(descriptor, format, [](const Sparse& found) { return static_cast<int>(found.matrix.format); });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetIndexBase(const void* descriptor, int* base) {
  return read(descriptor, base, [](const Sparse& found) { return int{found.matrix.base}; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetValues(const void* descriptor, void** values) {
  return read(descriptor, values, [](const Sparse& found) { return pointer(found.matrix.values); });
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstSpMatGetValues, cusparseSpMatGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatSetValues(void* descriptor, void* values) {
  return with<Sparse>(descriptor, [&](Sparse& found) {
    if (values == nullptr) return invalid_value;
    found.matrix.values = address(values);
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetSize(const void* descriptor, std::int64_t* rows,
                                                std::int64_t* columns, std::int64_t* entries) {
  return with<Sparse>(descriptor, [&](const Sparse& found) {
    if (!all_there(rows, columns, entries)) return invalid_value;
    *rows = found.matrix.rows;
    *columns = found.matrix.columns;
    *entries = found.matrix.entries;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatSetAttribute(void* descriptor, int attribute, const void* data,
                                                     std::size_t bytes) {
  return with<Sparse>(descriptor, [&](Sparse& found) {
    int* const field = attribute_of(found, attribute, data, bytes);
    if (field == nullptr) return invalid_value;
    int value = 0;
    std::memcpy(&value, data, sizeof value);
    if (value != 0 && value != 1) return invalid_value;
    *field = value;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMatGetAttribute(const void* descriptor, int attribute, void* data,
                                                     std::size_t bytes) {
  return with<Sparse>(descriptor, [&](Sparse& found) {
    const int* const field = attribute_of(found, attribute, data, bytes);
    if (field == nullptr) return invalid_value;
    std::memcpy(data, field, sizeof *field);
    return success;
  });
}
