// Indices: rows counted, entries sorted, matrices transposed. Each is one operation, and none needs a buffer.
#include <cstdint>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;
using namespace gpupool::operations;

namespace {

struct Sizes {
  std::int64_t m, n, entries;
};

template <class Fill>
int arrange(void* handle, Arrange what, const Sizes& sizes, int base, Fill fill) {
  return with_handle(handle, [&](const Handle& found) {
    if (sizes.m < 0 || sizes.n < 0 || sizes.entries < 0 || !is_base(base)) return invalid_value;
    SparseArrange made;
    made.what = what;
    made.m = sizes.m;
    made.n = sizes.n;
    made.entries = sizes.entries;
    made.base = static_cast<std::uint8_t>(base);
    fill(made);
    return post(found, made);
  });
}

int no_buffer(void* handle, const Sizes& sizes, std::size_t* bytes) {
  return with_handle(handle, [&](const Handle&) {
    if (bytes == nullptr || sizes.m < 0 || sizes.n < 0 || sizes.entries < 0) return invalid_value;
    *bytes = 0;
    return success;
  });
}

/// Columns of each row sorted, of a matrix as its descriptor says.
int sort_rows(void* handle, const Sizes& sizes, const void* descriptor, const int* offsets, int* indices,
              int* places) {
  if (find(handle) == nullptr) return not_initialized;
  const MatDescr* const matrix = known<MatDescr>(descriptor);
  if (matrix == nullptr) return invalid_value;
  if (matrix->type != 0) return matrix_type_not_supported;
  return arrange(handle, Arrange::sort_rows, sizes, matrix->base, [&](SparseArrange& made) {
    made.rows = address(offsets);
    made.columns = address(indices);
    made.to = address(places);
  });
}

int sort(void* handle, const Sizes& sizes, int* first, int* second, int* places) {
  return arrange(handle, Arrange::sort, sizes, 0, [&](SparseArrange& made) {
    made.rows = address(first);
    made.columns = address(second);
    made.to = address(places);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseXcoo2csr(void* handle, const int* rows, int entries, int m, int* offsets,
                                            int base) {
  return arrange(handle, Arrange::compress, {m, 0, entries}, base, [&](SparseArrange& made) {
    made.rows = address(rows);
    made.to = address(offsets);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcsr2coo(void* handle, const int* offsets, int entries, int m, int* rows,
                                            int base) {
  return arrange(handle, Arrange::expand, {m, 0, entries}, base, [&](SparseArrange& made) {
    made.rows = address(offsets);
    made.to = address(rows);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseCreateIdentityPermutation(void* handle, int count, int* places) {
  return arrange(handle, Arrange::identity, {0, 0, count}, 0,
                 [&](SparseArrange& made) { made.to = address(places); });
}

GPUPOOL_LIBRARY_EXPORT int cusparseXcoosort_bufferSizeExt(void* handle, int m, int n, int entries, const int*,
                                                          const int*, std::size_t* bytes) {
  return no_buffer(handle, {m, n, entries}, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcoosortByRow(void* handle, int m, int n, int entries, int* rows,
                                                 int* columns, int* places, void* /*buffer*/) {
  return sort(handle, {m, n, entries}, rows, columns, places);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcoosortByColumn(void* handle, int m, int n, int entries, int* rows,
                                                    int* columns, int* places, void* /*buffer*/) {
  return sort(handle, {m, n, entries}, columns, rows, places);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcsrsort_bufferSizeExt(void* handle, int m, int n, int entries, const int*,
                                                          const int*, std::size_t* bytes) {
  return no_buffer(handle, {m, n, entries}, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcsrsort(void* handle, int m, int n, int entries, const void* descriptor,
                                            const int* offsets, int* columns, int* places, void* /*buffer*/) {
  return sort_rows(handle, {m, n, entries}, descriptor, offsets, columns, places);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcscsort_bufferSizeExt(void* handle, int m, int n, int entries, const int*,
                                                          const int*, std::size_t* bytes) {
  return no_buffer(handle, {m, n, entries}, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcscsort(void* handle, int m, int n, int entries, const void* descriptor,
                                            const int* offsets, int* rows, int* places, void* /*buffer*/) {
  return sort_rows(handle, {n, m, entries}, descriptor, offsets, rows, places);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCsr2cscEx2_bufferSize(void* handle, int m, int n, int entries, const void*,
                                                         const int*, const int*, void*, int*, int*, int type,
                                                         int action, int base, int /*algorithm*/,
                                                         std::size_t* bytes) {
  if (find(handle) != nullptr && (!is_type(type) || !is_base(base) || action < 0 || action > 1))
    return invalid_value;
  return no_buffer(handle, {m, n, entries}, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseCsr2cscEx2(void* handle, int m, int n, int entries, const void* values,
                                              const int* offsets, const int* columns, void* to_values,
                                              int* to_offsets, int* to_rows, int type, int action, int base,
                                              int /*algorithm*/, void* /*buffer*/) {
  if (find(handle) != nullptr && (!is_type(type) || action < 0 || action > 1)) return invalid_value;
  return arrange(handle, Arrange::transpose, {m, n, entries}, base, [&](SparseArrange& made) {
    made.type = static_cast<Element>(type);
    made.rows = address(offsets);
    made.columns = address(columns);
    made.to = address(to_offsets);
    made.to_columns = address(to_rows);
    if (action == 0 || entries == 0) return;  // the pattern alone
    made.values = address(values);
    made.to_values = address(to_values);
  });
}
