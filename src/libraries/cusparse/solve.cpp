// Solutions with a sparse triangle. There is nothing to analyse: the order of rows is the order of solving.
#include <cstdint>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;
using namespace gpupool::operations;

namespace {

/// cusparseSpSVDescr_t and cusparseSpSMDescr_t.
struct Plan : Marked<0x536f6c76> {
  bool analysed = false;
};

struct Call {
  int op_a;
  const void *alpha, *a;
  int compute;
};

/// All but the right-hand sides and the solutions.
Status triangle(const Handle& handle, const Call& call, SparseSolve& made) {
  const SpMat* const a = known<SpMat>(call.a);
  if (a == nullptr || call.alpha == nullptr || !is_transposition(call.op_a) || a->rows() != a->columns())
    return invalid_value;
  if (a->format != csr && a->format != csc && a->format != coo) return not_supported;
  made.a = matrix_of(*a, call.op_a);
  // The triangle of what is stored: of CSC that is the other one.
  made.upper = (a->fill != 0) != (a->stored.turned != 0);
  made.unit = a->diagonal != 0;
  made.sum = static_cast<Element>(call.compute);
  if (a->batch == 1) made.a.offsets_stride = made.a.indices_stride = made.a.values_stride = 0;
  if (const Status bad = check_types(call.compute, {a->stored.type}); bad != success) return bad;
  made.alpha = factor(handle, call.alpha, made.sum);
  return success;
}

Status vector(const Handle& handle, const Call& call, const void* from, const void* into, SparseSolve& made) {
  const DnVec *const x = known<DnVec>(from), *const y = known<DnVec>(into);
  if (x == nullptr || y == nullptr) return invalid_value;
  if (const Status bad = triangle(handle, call, made); bad != success) return bad;
  if (x->size != made.a.rows || y->size != made.a.rows) return invalid_value;
  made.b = view_of(*x);
  made.c = view_of(*y);
  made.n = 1;
  return check_types(call.compute, {x->type, y->type});
}

Status matrix(const Handle& handle, const Call& call, int op_b, const void* from, const void* into,
              SparseSolve& made) {
  const SpMat* const a = known<SpMat>(call.a);
  const DnMat *const b = known<DnMat>(from), *const c = known<DnMat>(into);
  if (b == nullptr || c == nullptr || !is_transposition(op_b)) return invalid_value;
  if (const Status bad = triangle(handle, call, made); bad != success) return bad;
  if ((op_b == plain ? b->rows : b->columns) != made.a.rows || c->rows != made.a.rows ||
      (op_b == plain ? b->columns : b->rows) != c->columns || (b->batch != 1 && b->batch != c->batch) ||
      (a->batch != 1 && a->batch != c->batch))
    return invalid_value;
  if (op_b == conjugated) return not_supported;
  made.b = view_of(*b, op_b);
  made.c = view_of(*c);
  made.n = c->columns;
  made.batch = c->batch;
  return check_types(call.compute, {b->type, c->type});
}

/// The three steps of both: how large a buffer is, the analysis, the solution.
template <class Describe>
int size(void* handle, void* plan, std::size_t* bytes, Describe describe) {
  return with_handle(handle, [&](const Handle& found) {
    if (known<Plan>(plan) == nullptr || bytes == nullptr) return invalid_value;
    *bytes = 0;
    SparseSolve made;
    return describe(found, made);
  });
}
template <class Describe>
int analyse(void* handle, void* plan, Describe describe) {
  return with_handle(handle, [&](const Handle& found) {
    Plan* const known_plan = known<Plan>(plan);
    if (known_plan == nullptr) return invalid_value;
    SparseSolve made;
    const Status bad = describe(found, made);
    known_plan->analysed = bad == success;
    return bad;
  });
}
template <class Describe>
int solve(void* handle, void* plan, Describe describe) {
  return with_handle(handle, [&](const Handle& found) {
    const Plan* const known_plan = known<Plan>(plan);
    if (known_plan == nullptr || !known_plan->analysed) return invalid_value;
    SparseSolve made;
    if (const Status bad = describe(found, made); bad != success) return bad;
    return made.parts() == 0 || made.a.rows == 0 ? success : post(found, made);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_createDescr(void** plan) {
  return create<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_destroyDescr(void* plan) {
  return destroy<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_createDescr(void** plan) {
  return create<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_destroyDescr(void* plan) {
  return destroy<Plan>(plan);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_bufferSize(void* handle, int op, const void* alpha, const void* a,
                                                   const void* x, void* y, int compute, int /*algorithm*/,
                                                   void* plan, std::size_t* bytes) {
  return size(handle, plan, bytes, [&](const Handle& found, SparseSolve& made) {
    return vector(found, {op, alpha, a, compute}, x, y, made);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_analysis(void* handle, int op, const void* alpha, const void* a,
                                                 const void* x, void* y, int compute, int /*algorithm*/,
                                                 void* plan, void* /*buffer*/) {
  return analyse(handle, plan, [&](const Handle& found, SparseSolve& made) {
    return vector(found, {op, alpha, a, compute}, x, y, made);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSV_solve(void* handle, int op, const void* alpha, const void* a,
                                              const void* x, void* y, int compute, int /*algorithm*/,
                                              void* plan) {
  return solve(handle, plan, [&](const Handle& found, SparseSolve& made) {
    return vector(found, {op, alpha, a, compute}, x, y, made);
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_bufferSize(void* handle, int op_a, int op_b, const void* alpha,
                                                   const void* a, const void* b, void* c, int compute,
                                                   int /*algorithm*/, void* plan, std::size_t* bytes) {
  return size(handle, plan, bytes, [&](const Handle& found, SparseSolve& made) {
    return matrix(found, {op_a, alpha, a, compute}, op_b, b, c, made);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_analysis(void* handle, int op_a, int op_b, const void* alpha,
                                                 const void* a, const void* b, void* c, int compute,
                                                 int /*algorithm*/, void* plan, void* /*buffer*/) {
  return analyse(handle, plan, [&](const Handle& found, SparseSolve& made) {
    return matrix(found, {op_a, alpha, a, compute}, op_b, b, c, made);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpSM_solve(void* handle, int op_a, int op_b, const void* alpha,
                                              const void* a, const void* b, void* c, int compute,
                                              int /*algorithm*/, void* plan) {
  return solve(handle, plan, [&](const Handle& found, SparseSolve& made) {
    return matrix(found, {op_a, alpha, a, compute}, op_b, b, c, made);
  });
}
