// Products: sparse times dense, and dense times dense where a sparse matrix has entries.
#include <algorithm>

#include "libraries/cusparse/calls.h"

using namespace gpupool::cusparse;
using gpupool::operations::SparseFormat;
using gpupool::operations::SparseProduct;
using gpupool::operations::SparseSample;

namespace {

/// alpha and beta, and what sums are added up in (a cudaDataType).
struct Factors {
  const void *alpha, *beta;
  int compute;
};

/// The algorithms of cusparseSpMVAlg_t and cusparseSpMMAlg_t are numbers of a range; each has formats. All
/// give the same numbers here.
bool is_algorithm(int algorithm, int last) {
  return algorithm >= 0 && algorithm <= last;
}

int make(SparseProduct& made, const Handle& handle, const Sparse& a, int operation, const Factors& factors) {
  if (!is_operation(operation) || factors.alpha == nullptr || factors.beta == nullptr) return invalid_value;
  made.a = a.matrix;
  made.transpose = static_cast<Transpose>(operation);
  if (!can_compute(factors.compute, a.matrix.type, made.b.type, made.c.type)) return not_supported;
  made.sum = static_cast<Element>(factors.compute);
  made.alpha = factor_of(handle, factors.alpha, made.sum);
  made.beta = factor_of(handle, factors.beta, made.sum);
  return success;
}

/// `posts`: whether the product is wanted, and not only the check of its arguments.
int multiply_vector(void* handle, int operation, const Factors& factors, const void* a, const void* x,
                    const void* y, int algorithm, bool posts) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        const Sparse* const matrix = find<Sparse>(a);
        const DenseVector *const from = find<DenseVector>(x), *const to = find<DenseVector>(y);
        constexpr int last = 6;
        if (!all_there(matrix, from, to) || !is_operation(operation) || !is_algorithm(algorithm, last) ||
            from->size != columns_of(*matrix, operation) || to->size != rows_of(*matrix, operation))
          return invalid_value;
        SparseProduct made;
        made.b = view_of(*from);
        made.c = view_of(*to);
        made.n = 1;
        if (const int bad = make(made, found, *matrix, operation, factors); bad != success) return bad;
        if (matrix->batch != 1) return not_supported;
        return posts ? post(found, made) : success;
      },
      not_initialized);
}

/// Whether an operand has as many matrices as the result, or one for all of them.
bool has_batch(int own, int batch) {
  return own == batch || own == 1;
}

int multiply_matrix(void* handle, int operation_a, int operation_b, const Factors& factors, const void* a,
                    const void* b, const void* c, int algorithm, bool posts) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        const Sparse* const left = find<Sparse>(a);
        const Dense *const right = find<Dense>(b), *const to = find<Dense>(c);
        constexpr int last = 14;
        if (!all_there(left, right, to) || !is_operation(operation_a) || !is_operation(operation_b) ||
            !is_algorithm(algorithm, last) || to->rows != rows_of(*left, operation_a) ||
            to->columns != columns_of(*right, operation_b) ||
            rows_of(*right, operation_b) != columns_of(*left, operation_a) ||
            !has_batch(left->batch, to->batch) || !has_batch(right->batch, to->batch))
          return invalid_value;
        SparseProduct made;
        made.b = view_of(*right, operation_b);
        made.c = view_of(*to);
        made.n = to->columns;
        made.batch = to->batch;
        if (const int bad = make(made, found, *left, operation_a, factors); bad != success) return bad;
        if (left->batch == 1) made.a.stride = made.a.offsets_stride = 0;
        if (right->batch == 1) made.b.stride = 0;
        return posts ? post(found, made) : success;
      },
      not_initialized);
}

int sample(void* handle, int operation_a, int operation_b, const Factors& factors, const void* a,
           const void* b, const void* c, int algorithm, bool posts) {
  return with<Handle>(
      handle,
      [&](const Handle& found) -> int {
        const Dense *const left = find<Dense>(a), *const right = find<Dense>(b);
        const Sparse* const to = find<Sparse>(c);
        if (!all_there(left, right, to) || !is_operation(operation_a) || !is_operation(operation_b) ||
            algorithm != 0 || factors.alpha == nullptr || factors.beta == nullptr ||
            rows_of(*left, operation_a) != to->matrix.rows ||
            columns_of(*right, operation_b) != to->matrix.columns ||
            columns_of(*left, operation_a) != rows_of(*right, operation_b) ||
            !has_batch(left->batch, to->batch) || !has_batch(right->batch, to->batch))
          return invalid_value;
        // As NVIDIA's library: by rows alone.
        if (to->matrix.format != SparseFormat::by_rows || left->type != right->type ||
            !can_compute(factors.compute, left->type, right->type, to->matrix.type))
          return not_supported;
        SparseSample made;
        made.a = view_of(*left, operation_a);
        made.b = view_of(*right, operation_b);
        made.c = to->matrix;
        made.k = columns_of(*left, operation_a);
        made.batch = to->batch;
        made.sum = static_cast<Element>(factors.compute);
        made.alpha = factor_of(found, factors.alpha, made.sum);
        made.beta = factor_of(found, factors.beta, made.sum);
        if (left->batch == 1) made.a.stride = 0;
        if (right->batch == 1) made.b.stride = 0;
        return posts && to->matrix.entries > 0 ? post(found, made) : success;
      },
      not_initialized);
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseSpMV(void* handle, int operation, const void* alpha, const void* a,
                                        const void* x, const void* beta, void* y, int compute, int algorithm,
                                        void*) {
  return multiply_vector(handle, operation, {alpha, beta, compute}, a, x, y, algorithm, true);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMV_bufferSize(void* handle, int operation, const void* alpha,
                                                   const void* a, const void* x, const void* beta, void* y,
                                                   int compute, int algorithm, std::size_t* bytes) {
  return no_room(multiply_vector(handle, operation, {alpha, beta, compute}, a, x, y, algorithm, false),
                 bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMV_preprocess(void* handle, int operation, const void* alpha,
                                                   const void* a, const void* x, const void* beta, void* y,
                                                   int compute, int algorithm, void*) {
  return multiply_vector(handle, operation, {alpha, beta, compute}, a, x, y, algorithm, false);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSpMM(void* handle, int operation_a, int operation_b, const void* alpha,
                                        const void* a, const void* b, const void* beta, void* c, int compute,
                                        int algorithm, void*) {
  return multiply_matrix(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, true);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMM_bufferSize(void* handle, int operation_a, int operation_b,
                                                   const void* alpha, const void* a, const void* b,
                                                   const void* beta, void* c, int compute, int algorithm,
                                                   std::size_t* bytes) {
  return no_room(
      multiply_matrix(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, false),
      bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpMM_preprocess(void* handle, int operation_a, int operation_b,
                                                   const void* alpha, const void* a, const void* b,
                                                   const void* beta, void* c, int compute, int algorithm,
                                                   void*) {
  return multiply_matrix(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, false);
}

GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM(void* handle, int operation_a, int operation_b, const void* alpha,
                                         const void* a, const void* b, const void* beta, void* c, int compute,
                                         int algorithm, void*) {
  return sample(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, true);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM_bufferSize(void* handle, int operation_a, int operation_b,
                                                    const void* alpha, const void* a, const void* b,
                                                    const void* beta, void* c, int compute, int algorithm,
                                                    std::size_t* bytes) {
  return no_room(sample(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, false),
                 bytes);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSDDMM_preprocess(void* handle, int operation_a, int operation_b,
                                                    const void* alpha, const void* a, const void* b,
                                                    const void* beta, void* c, int compute, int algorithm,
                                                    void*) {
  return sample(handle, operation_a, operation_b, {alpha, beta, compute}, a, b, c, algorithm, false);
}
