// Other forms of a sparse matrix: offsets, rows, sorted entries, a dense one.
#include "libraries/cusparse/calls.h"

using namespace gpupool::cusparse;
using gpupool::operations::OnIndices;
using gpupool::operations::SparseIndices;
using gpupool::operations::SparseToDense;

namespace {

int convert(void* handle, OnIndices what, int entries, int m, const int* offsets, const int* rows, int base) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        const bool lacks = (what == OnIndices::compress || entries > 0) && offsets == nullptr;
        if (entries < 0 || m < 0 || !is_base(base) || lacks || (entries > 0 && rows == nullptr))
          return invalid_value;
        SparseIndices made;
        made.what = what;
        made.offsets = address(offsets);
        made.rows = address(rows);
        made.m = m;
        made.entries = entries;
        made.base = static_cast<std::uint8_t>(base);
        return post(found, made);
      },
      not_initialized);
}

int sort(void* handle, OnIndices what, int m, int n, int entries, const int* first, int* second,
         int* permutation) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        if (m < 0 || n < 0 || entries < 0) return invalid_value;
        if (entries == 0) return success;
        if (first == nullptr || second == nullptr) return invalid_value;
        SparseIndices made;
        made.what = what;
        (what == OnIndices::sort ? made.rows : made.offsets) = address(first);
        made.columns = address(second);
        made.permutation = address(permutation);
        made.m = m;
        made.entries = entries;
        return post(found, made);
      },
      not_initialized);
}

int room_to_sort(void* handle, int m, int n, int entries, std::size_t* bytes) {
  return with<Handle>(
      handle,
      [&](const Handle&) { return no_room(m < 0 || n < 0 || entries < 0 ? invalid_value : success, bytes); },
      not_initialized);
}

int to_dense(void* handle, const void* a, const void* b, int algorithm, bool posts) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        const Sparse* const from = find<Sparse>(a);
        const Dense* const to = find<Dense>(b);
        if (!all_there(from, to) || algorithm != 0 || from->matrix.rows != to->rows ||
            from->matrix.columns != to->columns)
          return invalid_value;
        if (from->matrix.type != to->type || from->batch != 1 || to->batch != 1) return not_supported;
        SparseToDense made;
        made.a = from->matrix;
        made.b = view_of(*to);
        return posts && to->rows > 0 && to->columns > 0 ? post(found, made) : success;
      },
      not_initialized);
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseXcoo2csr(void* handle, const int* rows, int entries, int m, int* offsets,
                                            int base) {
  return convert(handle, OnIndices::compress, entries, m, offsets, rows, base);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcsr2coo(void* handle, const int* offsets, int entries, int m, int* rows,
                                            int base) {
  return convert(handle, OnIndices::expand, entries, m, offsets, rows, base);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateIdentityPermutation(void* handle, int count, int* permutation) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        if (count < 0 || (count > 0 && permutation == nullptr)) return invalid_value;
        SparseIndices made;
        made.what = OnIndices::count;
        made.permutation = address(permutation);
        made.entries = count;
        return post(found, made);
      },
      not_initialized);
}

GPUPOOL_LIBRARY_EXPORT int cusparseXcoosort_bufferSizeExt(void* handle, int m, int n, int entries, const int*,
                                                          const int*, std::size_t* bytes) {
  return room_to_sort(handle, m, n, entries, bytes);
}
GPUPOOL_CUSPARSE_ALSO(cusparseXcsrsort_bufferSizeExt, cusparseXcoosort_bufferSizeExt);
GPUPOOL_CUSPARSE_ALSO(cusparseXcscsort_bufferSizeExt, cusparseXcoosort_bufferSizeExt);
GPUPOOL_LIBRARY_EXPORT int cusparseXcoosortByRow(void* handle, int m, int n, int entries, int* rows,
                                                 int* columns, int* permutation, void*) {
  return sort(handle, OnIndices::sort, m, n, entries, rows, columns, permutation);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcoosortByColumn(void* handle, int m, int n, int entries, int* rows,
                                                    int* columns, int* permutation, void*) {
  return sort(handle, OnIndices::sort, n, m, entries, columns, rows, permutation);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcsrsort(void* handle, int m, int n, int entries, const void* description,
                                            const int* offsets, int* columns, int* permutation, void*) {
  if (find<Handle>(handle) != nullptr && find<Described>(description) == nullptr) return invalid_value;
  return sort(handle, OnIndices::sort_in_rows, m, n, entries, offsets, columns, permutation);
}
GPUPOOL_LIBRARY_EXPORT int cusparseXcscsort(void* handle, int m, int n, int entries, const void* description,
                                            const int* offsets, int* rows, int* permutation, void*) {
  if (find<Handle>(handle) != nullptr && find<Described>(description) == nullptr) return invalid_value;
  return sort(handle, OnIndices::sort_in_rows, n, m, entries, offsets, rows, permutation);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSparseToDense(void* handle, const void* a, void* b, int algorithm, void*) {
  return to_dense(handle, a, b, algorithm, true);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSparseToDense_bufferSize(void* handle, const void* a, const void* b,
                                                            int algorithm, std::size_t* bytes) {
  return no_room(to_dense(handle, a, b, algorithm, false), bytes);
}
