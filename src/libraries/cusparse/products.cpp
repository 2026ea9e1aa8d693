// Products of sparse and dense matrices, entries beside dense ones, and vectors: each one operation.
#include <algorithm>
#include <cstdint>

#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;
using namespace gpupool::operations;

namespace {

/// What both products take.
struct Call {
  int op_a, op_b;
  const void *alpha, *a, *b, *beta, *c;
  int compute;
};

/// No operation needs a buffer, but a program may want one to be there.
int no_buffer(std::size_t* bytes) {
  if (bytes == nullptr) return invalid_value;
  *bytes = 0;
  return success;
}

/// SpMV, as the operation that it is. Checks as NVIDIA's does.
Status multiply_vector(const Handle& handle, const Call& call, SparseProduct& made) {
  const SpMat* const a = known<SpMat>(call.a);
  const DnVec *const x = known<DnVec>(call.b), *const y = known<DnVec>(call.c);
  if (a == nullptr || x == nullptr || y == nullptr || call.alpha == nullptr || call.beta == nullptr ||
      !is_transposition(call.op_a))
    return invalid_value;
  const bool turned = call.op_a != plain;
  if (x->size != (turned ? a->rows() : a->columns()) || y->size != (turned ? a->columns() : a->rows()))
    return invalid_value;
  if (a->format == blocked_ell) return not_supported;
  if (const Status bad = check_types(call.compute, {a->stored.type, x->type, y->type}); bad != success)
    return bad;
  made.a = matrix_of(*a, call.op_a);
  made.b = view_of(*x);
  made.c = view_of(*y);
  made.n = 1;
  made.sum = static_cast<Element>(call.compute);
  made.alpha = factor(handle, call.alpha, made.sum);
  made.beta = factor(handle, call.beta, made.sum);
  return success;
}

/// How many matrices there are: as many of each, or one that is the same for all.
bool batches(int batch, std::initializer_list<int> others) {
  return std::all_of(others.begin(), others.end(), [&](int other) { return other == 1 || other == batch; });
}

Status multiply_matrix(const Handle& handle, const Call& call, SparseProduct& made) {
  const SpMat* const a = known<SpMat>(call.a);
  const DnMat *const b = known<DnMat>(call.b), *const c = known<DnMat>(call.c);
  if (a == nullptr || b == nullptr || c == nullptr || call.alpha == nullptr || call.beta == nullptr ||
      !is_transposition(call.op_a) || !is_transposition(call.op_b))
    return invalid_value;
  const std::int64_t m = call.op_a == plain ? a->rows() : a->columns(),
                     k = call.op_a == plain ? a->columns() : a->rows();
  const std::int64_t terms = call.op_b == plain ? b->rows : b->columns,
                     n = call.op_b == plain ? b->columns : b->rows;
  if (terms != k || c->rows != m || c->columns != n || !batches(c->batch, {a->batch, b->batch}))
    return invalid_value;
  if (a->format == blocked_ell && call.op_a != plain) return not_supported;
  if (const Status bad = check_types(call.compute, {a->stored.type, b->type, c->type}); bad != success)
    return bad;
  made.a = matrix_of(*a, call.op_a);
  if (a->batch == 1) made.a.offsets_stride = made.a.indices_stride = made.a.values_stride = 0;
  made.b = view_of(*b, call.op_b);
  made.c = view_of(*c);
  made.n = n;
  made.batch = c->batch;
  made.sum = static_cast<Element>(call.compute);
  made.alpha = factor(handle, call.alpha, made.sum);
  made.beta = factor(handle, call.beta, made.sum);
  return success;
}

Status sample(const Handle& handle, const Call& call, SparseEntries& made) {
  const DnMat *const a = known<DnMat>(call.a), *const b = known<DnMat>(call.b);
  const SpMat* const c = known<SpMat>(call.c);
  if (a == nullptr || b == nullptr || c == nullptr || call.alpha == nullptr || call.beta == nullptr ||
      !is_transposition(call.op_a) || !is_transposition(call.op_b))
    return invalid_value;
  const std::int64_t m = call.op_a == plain ? a->rows : a->columns,
                     k = call.op_a == plain ? a->columns : a->rows;
  const std::int64_t terms = call.op_b == plain ? b->rows : b->columns,
                     n = call.op_b == plain ? b->columns : b->rows;
  if (terms != k || c->rows() != m || c->columns() != n || !batches(c->batch, {a->batch, b->batch}))
    return invalid_value;
  if (c->format == blocked_ell || call.op_a == conjugated || call.op_b == conjugated) return not_supported;
  if (const Status bad = check_types(call.compute, {a->type, b->type, c->stored.type}); bad != success)
    return bad;
  made.s = matrix_of(*c, plain);
  made.a = view_of(*a, call.op_a);
  made.b = view_of(*b, call.op_b);
  made.k = k;
  made.batch = c->batch;
  made.sum = static_cast<Element>(call.compute);
  made.alpha = factor(handle, call.alpha, made.sum);
  made.beta = factor(handle, call.beta, made.sum);
  return success;
}

/// What a sparse matrix has, as a dense one. Types that stay as they are: any can be computed with.
Status spread(const void* from, const void* into, SparseEntries& made) {
  const SpMat* const s = known<SpMat>(from);
  const DnMat* const a = known<DnMat>(into);
  if (s == nullptr || a == nullptr || s->rows() != a->rows || s->columns() != a->columns)
    return invalid_value;
  if (s->stored.type != a->type) return not_supported;
  const bool narrow = a->type == Element::f16 || a->type == Element::bf16;
  made.sum = narrow ? Element::f32 : a->type;
  if (check_types(static_cast<int>(made.sum), {}) != success) return not_supported;
  made.what = Entries::spread;
  made.s = matrix_of(*s, plain);
  made.a = view_of(*a);
  return success;
}

/// Posts what `describe` makes of the call, or (without `wanted`) only checks it.
template <class O, class Describe>
int run(void* handle, bool wanted, Describe describe) {
  return with_handle(handle, [&](const Handle& found) {
    O made;
    if (const Status bad = describe(found, made); bad != success) return bad;
    if (!wanted || made.parts() == 0) return success;
    return post(found, made);
  });
}

template <class O, class Describe>
int check(void* handle, std::size_t* bytes, Describe describe) {
  const int bad = run<O>(handle, false, describe);
  return bad != success ? bad : no_buffer(bytes);
}

template <auto describe>
auto with(const Call& call) {
  return [&call](const Handle& handle, auto& made) { return describe(handle, call, made); };
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseSpMV_bufferSize(void* handle, int op, const void* alpha, const void* a,
                                                   const void* x, const void* beta, void* y, int compute,
                                                   int /*algorithm*/, std::size_t* bytes) {
  const Call call{op, plain, alpha, a, x, beta, y, compute};
  return check<SparseProduct>(handle, bytes, with<multiply_vector>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMV_preprocess(void* handle, int op, const void* alpha, const void* a,
                                                   const void* x, const void* beta, void* y, int compute,
                                                   int /*algorithm*/, void* /*buffer*/) {
  const Call call{op, plain, alpha, a, x, beta, y, compute};
  return run<SparseProduct>(handle, false, with<multiply_vector>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMV(void* handle, int op, const void* alpha, const void* a, const void* x,
                                        const void* beta, void* y, int compute, int /*algorithm*/,
                                        void* /*buffer*/) {
  const Call call{op, plain, alpha, a, x, beta, y, compute};
  return run<SparseProduct>(handle, true, with<multiply_vector>(call));
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpMM_bufferSize(void* handle, int op_a, int op_b, const void* alpha,
                                                   const void* a, const void* b, const void* beta, void* c,
                                                   int compute, int /*algorithm*/, std::size_t* bytes) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return check<SparseProduct>(handle, bytes, with<multiply_matrix>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMM_preprocess(void* handle, int op_a, int op_b, const void* alpha,
                                                   const void* a, const void* b, const void* beta, void* c,
                                                   int compute, int /*algorithm*/, void* /*buffer*/) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return run<SparseProduct>(handle, false, with<multiply_matrix>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMM(void* handle, int op_a, int op_b, const void* alpha, const void* a,
                                        const void* b, const void* beta, void* c, int compute,
                                        int /*algorithm*/, void* /*buffer*/) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return run<SparseProduct>(handle, true, with<multiply_matrix>(call));
}

GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM_bufferSize(void* handle, int op_a, int op_b, const void* alpha,
                                                    const void* a, const void* b, const void* beta, void* c,
                                                    int compute, int /*algorithm*/, std::size_t* bytes) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return check<SparseEntries>(handle, bytes, with<sample>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM_preprocess(void* handle, int op_a, int op_b, const void* alpha,
                                                    const void* a, const void* b, const void* beta, void* c,
                                                    int compute, int /*algorithm*/, void* /*buffer*/) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return run<SparseEntries>(handle, false, with<sample>(call));
}
GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM(void* handle, int op_a, int op_b, const void* alpha, const void* a,
                                         const void* b, const void* beta, void* c, int compute,
                                         int /*algorithm*/, void* /*buffer*/) {
  const Call call{op_a, op_b, alpha, a, b, beta, c, compute};
  return run<SparseEntries>(handle, true, with<sample>(call));
}

GPUPOOL_LIBRARY_EXPORT int cusparseSparseToDense_bufferSize(void* handle, const void* a, void* b,
                                                            int /*algorithm*/, std::size_t* bytes) {
  return check<SparseEntries>(handle, bytes,
                              [&](const Handle&, SparseEntries& made) { return spread(a, b, made); });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSparseToDense(void* handle, const void* a, void* b, int /*algorithm*/,
                                                 void* /*buffer*/) {
  return run<SparseEntries>(handle, true,
                            [&](const Handle&, SparseEntries& made) { return spread(a, b, made); });
}
