// Descriptors of vectors and dense matrices: made, asked, changed.
#include <cstdint>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;

namespace {

template <class T, class F>
int with(const void* descriptor, bool fits, F f) {
  T* const found = known<T>(descriptor);
  if (found == nullptr || !fits) return invalid_value;
  f(*found);
  return success;
}

template <class T>
int values_of(const void* descriptor, void** values) {
  return with<T>(descriptor, values != nullptr, [&](const T& found) { *values = found.values; });
}
template <class T>
int set_values(void* descriptor, void* values) {
  return with<T>(descriptor, true, [&](T& found) { found.values = values; });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreateDnVec(void** vector, std::int64_t size, void* values, int type) {
  return guarded([&]() -> int {
    if (vector == nullptr || !gpupool::operations::are_sizes({size}) || !is_type(type)) return invalid_value;
    auto* const made = new DnVec;
    made->size = size;
    made->values = values;
    made->type = static_cast<Element>(type);
    *vector = made;
    return success;
  });
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstDnVec, cusparseCreateDnVec);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyDnVec(const void* vector) {
  return destroy<DnVec>(vector);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecGet(const void* vector, std::int64_t* size, void** values,
                                            int* type) {
  return with<DnVec>(vector, size != nullptr && values != nullptr && type != nullptr,
                     [&](const DnVec& found) {
                       *size = found.size;
                       *values = found.values;
                       *type = static_cast<int>(found.type);
                     });
}
GPUPOOL_SPARSE_CONST(cusparseConstDnVecGet, cusparseDnVecGet);
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecGetValues(const void* vector, void** values) {
  return values_of<DnVec>(vector, values);
}
GPUPOOL_SPARSE_CONST(cusparseConstDnVecGetValues, cusparseDnVecGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecSetValues(void* vector, void* values) {
  return set_values<DnVec>(vector, values);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateDnMat(void** matrix, std::int64_t rows, std::int64_t columns,
                                               std::int64_t leading, void* values, int type, int order) {
  return guarded([&]() -> int {
    const bool fits = matrix != nullptr && gpupool::operations::are_sizes({rows, columns, leading}) &&
                      is_type(type) && (order == by_row || order == by_column) &&
                      leading >= (order == by_row ? columns : rows);
    if (!fits) return invalid_value;
    auto* const made = new DnMat;
    made->rows = rows;
    made->columns = columns;
    made->leading = leading;
    made->values = values;
    made->type = static_cast<Element>(type);
    made->order = order;
    *matrix = made;
    return success;
  });
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstDnMat, cusparseCreateDnMat);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyDnMat(const void* matrix) {
  return destroy<DnMat>(matrix);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGet(const void* matrix, std::int64_t* rows, std::int64_t* columns,
                                            std::int64_t* leading, void** values, int* type, int* order) {
  const bool fits = rows != nullptr && columns != nullptr && leading != nullptr && values != nullptr &&
                    type != nullptr && order != nullptr;
  return with<DnMat>(matrix, fits, [&](const DnMat& found) {
    *rows = found.rows;
    *columns = found.columns;
    *leading = found.leading;
    *values = found.values;
    *type = static_cast<int>(found.type);
    *order = found.order;
  });
}
GPUPOOL_SPARSE_CONST(cusparseConstDnMatGet, cusparseDnMatGet);
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGetValues(const void* matrix, void** values) {
  return values_of<DnMat>(matrix, values);
}
GPUPOOL_SPARSE_CONST(cusparseConstDnMatGetValues, cusparseDnMatGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatSetValues(void* matrix, void* values) {
  return set_values<DnMat>(matrix, values);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatSetStridedBatch(void* matrix, int batch, std::int64_t stride) {
  return with<DnMat>(matrix, batch > 0 && stride >= 0, [&](DnMat& found) {
    found.batch = batch;
    found.stride = stride;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGetStridedBatch(const void* matrix, int* batch,
                                                        std::int64_t* stride) {
  return with<DnMat>(matrix, batch != nullptr && stride != nullptr, [&](const DnMat& found) {
    *batch = found.batch;
    *stride = found.stride;
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateSpVec(void** vector, std::int64_t size, std::int64_t entries,
                                               void* indices, void* values, int index_type, int base,
                                               int type) {
  return guarded([&]() -> int {
    const bool fits = vector != nullptr && gpupool::operations::are_sizes({size, entries}) &&
                      entries <= size && is_index(index_type) && is_base(base) && is_type(type);
    if (!fits) return invalid_value;
    auto* const made = new SpVec;
    made->size = size;
    made->entries = entries;
    made->indices = indices;
    made->values = values;
    made->index_type = static_cast<Index>(index_type);
    made->base = static_cast<std::uint8_t>(base);
    made->type = static_cast<Element>(type);
    *vector = made;
    return success;
  });
}
GPUPOOL_SPARSE_CONST(cusparseCreateConstSpVec, cusparseCreateSpVec);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroySpVec(const void* vector) {
  return destroy<SpVec>(vector);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpVecGet(const void* vector, std::int64_t* size, std::int64_t* entries,
                                            void** indices, void** values, int* index_type, int* base,
                                            int* type) {
  const bool fits = size != nullptr && entries != nullptr && indices != nullptr && values != nullptr &&
                    index_type != nullptr && base != nullptr && type != nullptr;
  return with<SpVec>(vector, fits, [&](const SpVec& found) {
    *size = found.size;
    *entries = found.entries;
    *indices = found.indices;
    *values = found.values;
    *index_type = static_cast<int>(found.index_type);
    *base = found.base;
    *type = static_cast<int>(found.type);
  });
}
GPUPOOL_SPARSE_CONST(cusparseConstSpVecGet, cusparseSpVecGet);
GPUPOOL_LIBRARY_EXPORT int cusparseSpVecGetIndexBase(const void* vector, int* base) {
  return with<SpVec>(vector, base != nullptr, [&](const SpVec& found) { *base = found.base; });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpVecGetValues(const void* vector, void** values) {
  return values_of<SpVec>(vector, values);
}
GPUPOOL_SPARSE_CONST(cusparseConstSpVecGetValues, cusparseSpVecGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseSpVecSetValues(void* vector, void* values) {
  return set_values<SpVec>(vector, values);
}
