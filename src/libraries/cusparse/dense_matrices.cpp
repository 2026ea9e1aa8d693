// Descriptors of dense matrices and vectors. No message.
#include "libraries/cusparse/objects.h"

using namespace gpupool::cusparse;

namespace {

constexpr int by_column = 1, by_row = 2;  // cusparseOrder_t

template <class T>
int read_values(const void* descriptor, void** values) {
  return with<T>(descriptor, [&](const T& found) {
    if (values == nullptr) return invalid_value;
    *values = found.values;
    return success;
  });
}

template <class T>
int set_values(void* descriptor, void* values) {
  return with<T>(descriptor, [&](T& found) {
    if (values == nullptr) return invalid_value;
    found.values = values;
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreateDnMat(void** made, std::int64_t rows, std::int64_t columns,
                                               std::int64_t leading, void* values, int type, int order) {
  return guarded([&] {
    if (made == nullptr || rows < 0 || columns < 0 || (order != by_column && order != by_row) ||
        leading < (order == by_column ? rows : columns))
      return invalid_value;
    if (values == nullptr && rows > 0 && columns > 0) return invalid_value;
    if (!is_carried(type)) return not_supported;
    auto* const found = new Dense;
    found->rows = rows;
    found->columns = columns;
    found->leading = leading;
    found->values = values;
    found->type = static_cast<Element>(type);
    found->order = order;
    *made = found;
    return success;
  });
}
GPUPOOL_CUSPARSE_ALSO(cusparseCreateConstDnMat, cusparseCreateDnMat);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyDnMat(const void* descriptor) {
  return destroy<Dense>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGet(const void* descriptor, std::int64_t* rows, std::int64_t* columns,
                                            std::int64_t* leading, void** values, int* type, int* order) {
  return with<Dense>(descriptor, [&](const Dense& found) {
    if (!all_there(rows, columns, leading, values, type, order)) return invalid_value;
    *rows = found.rows;
    *columns = found.columns;
    *leading = found.leading;
    *values = found.values;
    *type = static_cast<int>(found.type);
    *order = found.order;
    return success;
  });
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstDnMatGet, cusparseDnMatGet);
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGetValues(const void* descriptor, void** values) {
  return read_values<Dense>(descriptor, values);
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstDnMatGetValues, cusparseDnMatGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatSetValues(void* descriptor, void* values) {
  return set_values<Dense>(descriptor, values);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatSetStridedBatch(void* descriptor, int count, std::int64_t stride) {
  return with<Dense>(descriptor, [&](Dense& found) {
    if (count <= 0 || stride < 0) return invalid_value;
    found.batch = count;
    found.stride = stride;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnMatGetStridedBatch(const void* descriptor, int* count,
                                                        std::int64_t* stride) {
  return with<Dense>(descriptor, [&](const Dense& found) {
    if (!all_there(count, stride)) return invalid_value;
    *count = found.batch;
    *stride = found.stride;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateDnVec(void** made, std::int64_t size, void* values, int type) {
  return guarded([&] {
    if (made == nullptr || size < 0 || (values == nullptr && size > 0)) return invalid_value;
    if (!is_carried(type)) return not_supported;
    auto* const found = new DenseVector;
    found->size = size;
    found->values = values;
    found->type = static_cast<Element>(type);
    *made = found;
    return success;
  });
}
GPUPOOL_CUSPARSE_ALSO(cusparseCreateConstDnVec, cusparseCreateDnVec);
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyDnVec(const void* descriptor) {
  return destroy<DenseVector>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecGet(const void* descriptor, std::int64_t* size, void** values,
                                            int* type) {
  return with<DenseVector>(descriptor, [&](const DenseVector& found) {
    if (!all_there(size, values, type)) return invalid_value;
    *size = found.size;
    *values = found.values;
    *type = static_cast<int>(found.type);
    return success;
  });
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstDnVecGet, cusparseDnVecGet);
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecGetValues(const void* descriptor, void** values) {
  return read_values<DenseVector>(descriptor, values);
}
GPUPOOL_CUSPARSE_ALSO(cusparseConstDnVecGetValues, cusparseDnVecGetValues);
GPUPOOL_LIBRARY_EXPORT int cusparseDnVecSetValues(void* descriptor, void* values) {
  return set_values<DenseVector>(descriptor, values);
}
