// Solutions with triangles of sparse matrices. An analysis checks its arguments: it finds nothing that a
// solution would need.
#include "libraries/cusparse/calls.h"

using namespace gpupool::cusparse;
using gpupool::operations::SparseFormat;
using gpupool::operations::SparseSolve;

namespace {

struct Call {
  void* handle;
  int operation;
  const void *alpha, *a, *analysis;
  int compute, algorithm;
  bool posts;
};

/// `fill`: puts in the right sides and the result, if they fit.
template <class F>
int solve(const Call& call, F fill) {
  return with<Handle>(
      call.handle,
      [&](const Handle& found) -> int {
        const Sparse* const a = find<Sparse>(call.a);
        if (a == nullptr || find<Analysis>(call.analysis) == nullptr || call.alpha == nullptr ||
            !is_operation(call.operation) || call.algorithm != 0 || a->matrix.rows != a->matrix.columns)
          return invalid_value;
        SparseSolve made;
        if (!fill(made, a->matrix.rows)) return invalid_value;
        if (a->batch != 1 || a->matrix.format == SparseFormat::by_columns || made.b.stride != 0 ||
            !can_compute(call.compute, a->matrix.type, made.b.type, made.c.type) ||
            a->matrix.type != made.b.type || made.b.type != static_cast<Element>(call.compute))
          return not_supported;
        made.a = a->matrix;
        made.transpose = static_cast<Transpose>(call.operation);
        made.upper = static_cast<std::uint8_t>(a->upper);
        made.unit = static_cast<std::uint8_t>(a->unit);
        made.sum = static_cast<Element>(call.compute);
        made.alpha = factor_of(found, call.alpha, made.sum);
        return call.posts && a->matrix.rows > 0 ? post(found, made) : success;
      },
      not_initialized);
}

int solve_vector(const Call& call, const void* x, const void* y) {
  return solve(call, [&](SparseSolve& made, std::int64_t order) {
    const DenseVector *const from = find<DenseVector>(x), *const to = find<DenseVector>(y);
    if (!all_there(from, to) || from->size != order || to->size != order) return false;
    made.b = view_of(*from);
    made.c = view_of(*to);
    made.n = 1;
    return true;
  });
}

int solve_matrix(const Call& call, int operation_b, const void* b, const void* c) {
  return solve(call, [&](SparseSolve& made, std::int64_t order) {
    const Dense *const from = find<Dense>(b), *const to = find<Dense>(c);
    if (!all_there(from, to) || !is_operation(operation_b) || rows_of(*from, operation_b) != order ||
        to->rows != order || to->columns != columns_of(*from, operation_b))
      return false;
    made.b = view_of(*from, operation_b);
    made.c = view_of(*to);
    made.n = to->columns;
    return true;
  });
}

int create(void** analysis) {
  return guarded([&] {
    if (analysis == nullptr) return invalid_value;
    *analysis = new Analysis;
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_createDescr(void** analysis) {
  return create(analysis);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_destroyDescr(void* analysis) {
  return destroy<Analysis>(analysis);
}
GPUPOOL_CUSPARSE_ALSO(cusparseSpSM_createDescr, cusparseSpSV_createDescr);
GPUPOOL_CUSPARSE_ALSO(cusparseSpSM_destroyDescr, cusparseSpSV_destroyDescr);

GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_bufferSize(void* handle, int operation, const void* alpha,
                                                   const void* a, const void* x, void* y, int compute,
                                                   int algorithm, void* analysis, std::size_t* bytes) {
  return no_room(solve_vector({handle, operation, alpha, a, analysis, compute, algorithm, false}, x, y),
                 bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_analysis(void* handle, int operation, const void* alpha,
                                                 const void* a, const void* x, void* y, int compute,
                                                 int algorithm, void* analysis, void*) {
  return solve_vector({handle, operation, alpha, a, analysis, compute, algorithm, false}, x, y);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_solve(void* handle, int operation, const void* alpha, const void* a,
                                              const void* x, void* y, int compute, int algorithm,
                                              void* analysis) {
  return solve_vector({handle, operation, alpha, a, analysis, compute, algorithm, true}, x, y);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_bufferSize(void* handle, int operation_a, int operation_b,
                                                   const void* alpha, const void* a, const void* b, void* c,
                                                   int compute, int algorithm, void* analysis,
                                                   std::size_t* bytes) {
  return no_room(
      solve_matrix({handle, operation_a, alpha, a, analysis, compute, algorithm, false}, operation_b, b, c),
      bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_analysis(void* handle, int operation_a, int operation_b,
                                                 const void* alpha, const void* a, const void* b, void* c,
                                                 int compute, int algorithm, void* analysis, void*) {
  return solve_matrix({handle, operation_a, alpha, a, analysis, compute, algorithm, false}, operation_b, b,
                      c);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_solve(void* handle, int operation_a, int operation_b,
                                              const void* alpha, const void* a, const void* b, void* c,
                                              int compute, int algorithm, void* analysis) {
  return solve_matrix({handle, operation_a, alpha, a, analysis, compute, algorithm, true}, operation_b, b, c);
}
