// Sparse matrices that are made of others: rows are counted on the device, the program is told how many
// entries there are (the only thing that is waited for), makes room, and has them filled.
#include <cstdint>

#include "libraries/cusparse/calls.h"
#include "libraries/cusparse/descriptors.h"

using namespace gpupool::cusparse;
using namespace gpupool::operations;

namespace {

/// cusparseSpGEMMDescr_t.
struct Plan : Marked<0x5370474d> {
  std::uint64_t counts = 0;  // in the program's buffer
};

std::size_t bytes_of_counts(std::int64_t rows) {
  return (static_cast<std::size_t>(rows) + 1) * sizeof(std::int64_t);
}

/// Counts the rows of what `made` describes at `made.counts`.
Status count(const Handle& handle, SparseMaking made) {
  made.step = MakingStep::count;
  if (made.c.rows > 0) {
    if (const Status bad = post(handle, made); bad != success) return bad;
  }
  made.step = MakingStep::offsets;
  return post(handle, made);
}

/// The same, and tells the matrix that it is made for.
Status count_for(const Handle& handle, const SparseMaking& made, SpMat& matrix) {
  if (const Status bad = count(handle, made); bad != success) return bad;
  std::int64_t entries = 0;
  const std::uint64_t last = made.counts + static_cast<std::uint64_t>(made.c.rows) * sizeof entries;
  if (const Status bad = read_back(handle, &entries, last); bad != success) return bad;
  matrix.stored.entries = entries;
  return success;
}

struct Multiplied {
  int op_a, op_b;
  const void *alpha, *a, *b, *beta;
  void* c;
  int compute;
};

Status describe(const Handle& handle, const Multiplied& call, SparseMaking& made) {
  const SpMat *const a = known<SpMat>(call.a), *const b = known<SpMat>(call.b),
                     *const c = known<SpMat>(call.c);
  if (a == nullptr || b == nullptr || c == nullptr || call.alpha == nullptr || call.beta == nullptr ||
      !is_transposition(call.op_a) || !is_transposition(call.op_b))
    return invalid_value;
  if (a->columns() != b->rows() || c->rows() != a->rows() || c->columns() != b->columns())
    return invalid_value;
  if (a->format != csr || b->format != csr || c->format != csr || call.op_a != plain || call.op_b != plain)
    return not_supported;
  if (const Status bad = check_types(call.compute, {a->stored.type, b->stored.type, c->stored.type});
      bad != success)
    return bad;
  made.what = Making::product;
  made.a = a->stored;
  made.b = b->stored;
  made.c = c->stored;
  made.sum = static_cast<Element>(call.compute);
  made.alpha = factor(handle, call.alpha, made.sum);
  made.beta = factor(handle, call.beta, made.sum);
  // What is added would need entries of its own. In device memory the operation finds it.
  const bool adds =
      handle.pointer_mode == host && (made.beta.value.words[0] != 0 || made.beta.value.words[1] != 0);
  return adds ? not_supported : success;
}

/// A dense matrix's entries; CSC is made of the transposed one, by rows.
Status describe(const void* from, const void* into, SparseMaking& made) {
  const DnMat* const a = known<DnMat>(from);
  const SpMat* const c = known<SpMat>(into);
  if (a == nullptr || c == nullptr || a->rows != c->rows() || a->columns != c->columns())
    return invalid_value;
  if ((c->format != csr && c->format != csc && c->format != coo) || a->type != c->stored.type)
    return not_supported;
  made.what = Making::dense;
  made.c = c->stored;
  made.c.turned = false;
  made.dense = view_of(*a, c->stored.turned ? transposed : plain);
  const bool narrow = a->type == Element::f16 || a->type == Element::bf16;
  made.sum = narrow ? Element::f32 : a->type;
  return check_types(static_cast<int>(made.sum), {});
}

/// A CSR matrix as the older functions are given it.
Sparse matrix_of(const MatDescr& descriptor, int m, int n, int entries, const void* offsets,
                 const void* columns, const void* values, Element type) {
  Sparse made;
  made.rows = m;
  made.columns = n;
  made.entries = entries;
  made.offsets = address(offsets);
  made.indices = address(columns);
  made.values = address(values);
  made.type = type;
  made.base = static_cast<std::uint8_t>(descriptor.base);
  return made;
}

Status describe_sum(const Types& types, const gpupool::cusparse::Call& call, SparseMaking& made) {
  const MatDescr *const a = known<MatDescr>(call.descr_a), *const b = known<MatDescr>(call.descr_b),
                        *const c = known<MatDescr>(call.descr_c);
  if (a == nullptr || b == nullptr || c == nullptr || call.m < 0 || call.n < 0 || call.nnz_a < 0 ||
      call.nnz_b < 0)
    return invalid_value;
  if (a->type != 0 || b->type != 0 || c->type != 0) return matrix_type_not_supported;
  const int m = static_cast<int>(call.m), n = static_cast<int>(call.n);
  made.what = Making::sum;
  made.sum = types.element;
  made.a = ::matrix_of(*a, m, n, call.nnz_a, call.rows_a, call.columns_a, call.values_a, types.element);
  made.b = ::matrix_of(*b, m, n, call.nnz_b, call.rows_b, call.columns_b, call.values_b, types.element);
  made.c = ::matrix_of(*c, m, n, 0, call.rows_c, call.columns_c, call.values_c, types.element);
  made.counts = made.c.offsets;
  made.count_type = Index::i32;
  made.count_base = made.c.base;
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseSpGEMM_createDescr(void** plan) {
  return create<Plan>(plan);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpGEMM_destroyDescr(void* plan) {
  return destroy<Plan>(plan);
}

/// Nothing is estimated: rows are counted by `compute`. NVIDIA's always asks for room, and TensorFlow relies
/// on it.
GPUPOOL_LIBRARY_EXPORT int cusparseSpGEMM_workEstimation(void* handle, int op_a, int op_b, const void* alpha,
                                                         const void* a, const void* b, const void* beta,
                                                         void* c, int compute, int /*algorithm*/, void* plan,
                                                         std::size_t* bytes, void* /*buffer*/) {
  return with_handle(handle, [&](const Handle& found) {
    if (known<Plan>(plan) == nullptr || bytes == nullptr) return invalid_value;
    SparseMaking made;
    *bytes = bytes_of_counts(0);
    return describe(found, {op_a, op_b, alpha, a, b, beta, c, compute}, made);
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpGEMM_compute(void* handle, int op_a, int op_b, const void* alpha,
                                                  const void* a, const void* b, const void* beta, void* c,
                                                  int compute, int /*algorithm*/, void* plan,
                                                  std::size_t* bytes, void* buffer) {
  return with_handle(handle, [&](const Handle& found) {
    Plan* const known_plan = known<Plan>(plan);
    if (known_plan == nullptr || bytes == nullptr) return invalid_value;
    SparseMaking made;
    if (const Status bad = describe(found, {op_a, op_b, alpha, a, b, beta, c, compute}, made); bad != success)
      return bad;
    const std::size_t needed = bytes_of_counts(made.c.rows);
    if (buffer == nullptr) {
      *bytes = needed;
      return success;
    }
    if (*bytes < needed) return insufficient_resources;
    made.counts = known_plan->counts = address(buffer);
    return count_for(found, made, *known<SpMat>(c));
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSpGEMM_copy(void* handle, int op_a, int op_b, const void* alpha,
                                               const void* a, const void* b, const void* beta, void* c,
                                               int compute, int /*algorithm*/, void* plan) {
  return with_handle(handle, [&](const Handle& found) {
    const Plan* const known_plan = known<Plan>(plan);
    if (known_plan == nullptr || known_plan->counts == 0) return invalid_value;
    SparseMaking made;
    if (const Status bad = describe(found, {op_a, op_b, alpha, a, b, beta, c, compute}, made); bad != success)
      return bad;
    made.counts = known_plan->counts;
    made.step = MakingStep::fill;
    return post(found, made);
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseDenseToSparse_bufferSize(void* handle, const void* a, void* b,
                                                            int /*algorithm*/, std::size_t* bytes) {
  return with_handle(handle, [&](const Handle&) {
    if (bytes == nullptr) return invalid_value;
    SparseMaking made;
    const Status bad = describe(a, b, made);
    *bytes = bytes_of_counts(made.c.rows);
    return bad;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDenseToSparse_analysis(void* handle, const void* a, void* b,
                                                          int /*algorithm*/, void* buffer) {
  return with_handle(handle, [&](const Handle& found) {
    SparseMaking made;
    if (buffer == nullptr) return invalid_value;
    if (const Status bad = describe(a, b, made); bad != success) return bad;
    made.counts = address(buffer);
    return count_for(found, made, *known<SpMat>(b));
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDenseToSparse_convert(void* handle, const void* a, void* b,
                                                         int /*algorithm*/, void* buffer) {
  return with_handle(handle, [&](const Handle& found) {
    SparseMaking made;
    if (buffer == nullptr) return invalid_value;
    if (const Status bad = describe(a, b, made); bad != success) return bad;
    made.counts = address(buffer);
    made.step = MakingStep::fill;
    return post(found, made);
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseXcsrgeam2Nnz(void* handle, int m, int n, const void* descr_a, int nnz_a,
                                                const int* rows_a, const int* columns_a, const void* descr_b,
                                                int nnz_b, const int* rows_b, const int* columns_b,
                                                const void* descr_c, int* rows_c, int* total,
                                                void* /*workspace*/) {
  return with_handle(handle, [&](const Handle& found) -> int {
    gpupool::cusparse::Call call;
    call.m = m;
    call.n = n;
    call.descr_a = const_cast<void*>(descr_a);
    call.descr_b = const_cast<void*>(descr_b);
    call.descr_c = const_cast<void*>(descr_c);
    call.nnz_a = nnz_a;
    call.nnz_b = nnz_b;
    call.rows_a = const_cast<int*>(rows_a);
    call.columns_a = const_cast<int*>(columns_a);
    call.rows_b = const_cast<int*>(rows_b);
    call.columns_b = const_cast<int*>(columns_b);
    call.rows_c = rows_c;
    SparseMaking made;
    if (const Status bad = describe_sum({}, call, made); bad != success) return bad;
    if (rows_c == nullptr || total == nullptr) return invalid_value;
    if (found.pointer_mode == device) made.total = address(total);
    const Status bad_count = count(found, made);
    if (bad_count != success || found.pointer_mode == device) return bad_count;
    int last = 0;
    const Status bad = read_back(found, &last, made.counts + static_cast<std::uint64_t>(m) * sizeof last);
    *total = last - made.c.base;
    return bad;
  });
}

namespace gpupool::cusparse {

int geam_size(Handle&, const Types& types, const Call& call) {
  SparseMaking made;
  if (call.bytes == nullptr || call.alpha == nullptr || call.beta == nullptr) return invalid_value;
  *static_cast<std::size_t*>(call.bytes) = 0;
  return describe_sum(types, call, made);
}

int geam(Handle& handle, const Types& types, const Call& call) {
  SparseMaking made;
  if (call.alpha == nullptr || call.beta == nullptr) return invalid_value;
  if (const Status bad = describe_sum(types, call, made); bad != success) return bad;
  made.step = MakingStep::fill;
  made.alpha = factor(handle, call.alpha, types.element);
  made.beta = factor(handle, call.beta, types.element);
  // Only the device knows how many entries C has; there are no more than both have.
  made.c.entries = std::int64_t{call.nnz_a} + call.nnz_b;
  return made.c.rows == 0 ? success : post(handle, made);
}

}  // namespace gpupool::cusparse
