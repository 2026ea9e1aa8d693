// Matrix products. Every function is one operation with other types, sizes and ways to say where its batches
// are.
#include <cstdint>
#include <optional>

#include "libraries/cublas/gemm_types.h"
#include "libraries/cublas/handle.h"
#include "libraries/operations/gemm.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;

namespace {

using gpupool::operations::Element;
using gpupool::operations::Gemm;
using gpupool::operations::Matrix;
using gpupool::operations::Transpose;

/// Whether products of A and B may be stored in C, as the table of cublasGemmEx says.
bool fits(Element a, Element b, Element c, Element sum) {
  const bool complex = gpupool::operations::is_complex(a);
  if (complex != gpupool::operations::is_complex(b) || complex != gpupool::operations::is_complex(c))
    return false;
  if (sum == Element::i32) return a == Element::i8 && b == Element::i8 && c == Element::i32;
  if (sum == Element::f64) return a == b && b == c && (a == Element::f64 || a == Element::c64);
  if (a == Element::f64 || a == Element::c64 || a != b) return false;
  if (a == Element::i8) return c == Element::f32;
  if (a == Element::f32 || a == Element::c32) return c == a;
  return (a == Element::f16 || a == Element::bf16) && (c == a || c == Element::f32);
}

struct Operand {
  const void* address;
  std::int64_t leading, stride = 0;
};

/// One call, before it is known to be right.
struct Call {
  int transpose_a, transpose_b;
  std::int64_t m, n, k;
  const void* alpha;
  Operand a, b;
  const void* beta;
  Operand c;
  std::int64_t batch = 1;
  bool pointers = false;
};

Matrix matrix(const Operand& operand, Element type, const Call& call) {
  Matrix made;
  made.address = reinterpret_cast<std::uintptr_t>(operand.address);
  made.leading = operand.leading;
  made.stride = operand.stride;
  made.type = type;
  made.pointers = call.pointers;
  return made;
}

/// The checks in the order of the documentation of cublas<t>gemm.
bool valid(const Call& call) {
  if (call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0) return false;
  if (call.transpose_a < 0 || call.transpose_a > 2 || call.transpose_b < 0 || call.transpose_b > 2)
    return false;
  if (call.a.leading < std::max<std::int64_t>(1, call.transpose_a == 0 ? call.m : call.k)) return false;
  if (call.b.leading < std::max<std::int64_t>(1, call.transpose_b == 0 ? call.k : call.n)) return false;
  if (call.c.leading < std::max<std::int64_t>(1, call.m)) return false;
  return call.alpha != nullptr && call.beta != nullptr;
}

int gemm(void* handle, const Call& call, Element a, Element b, Element c, const std::optional<Sums>& sums) {
  return guarded([&]() -> int {
    const Handle* const found = find(handle);
    if (found == nullptr) return not_initialized;
    if (!valid(call)) return invalid_value;
    if (!sums || !fits(a, b, c, sums->sum)) return not_supported;
    if (call.m == 0 || call.n == 0 || call.batch == 0) return success;
    Gemm operation;
    operation.a = matrix(call.a, a, call);
    operation.b = matrix(call.b, b, call);
    operation.c = operation.d = matrix(call.c, c, call);
    operation.m = call.m;
    operation.n = call.n;
    operation.k = call.k;
    operation.batch = call.batch;
    operation.transpose_a = static_cast<Transpose>(call.transpose_a);
    operation.transpose_b = static_cast<Transpose>(call.transpose_b);
    operation.sum = sums->sum;
    operation.scalar = sums->scalar;
    operation.compute = found->compute_of(sums->compute, a);
    operation.reductions = found->reductions();
    operation.multiprocessors = found->multiprocessors;
    operation.workspace = reinterpret_cast<std::uintptr_t>(found->workspace);
    operation.workspace_bytes = found->workspace_bytes;
    operation.scalars_on_device = found->pointer_mode == device;
    const std::size_t bytes = gpupool::operations::bytes_of(sums->scalar);
    operation.alpha = scalar(*found, call.alpha, bytes);
    operation.beta = scalar(*found, call.beta, bytes);
    return status_of(gpupool::libraries::launch(operation, found->stream));
  });
}

/// With the types that the call names; `sums` of cublasComputeType_t.
int gemm_of_types(void* handle, const Call& call, int a, int b, int c, int compute) {
  if (!known(a) || !known(b) || !known(c)) return not_supported;
  const bool sums_of_half = compute == 64 || compute == 65;
  if (sums_of_half && (a != 2 || b != 2 || c != 2)) return not_supported;
  return gemm(handle, call, static_cast<Element>(a), static_cast<Element>(b), static_cast<Element>(c),
              sums_of(compute, static_cast<Element>(c)));
}

}  // namespace

// Each function twice: the second, NAME_64, takes 64-bit sizes.
#define GPUPOOL_BOTH_WIDTHS(define, name, ...) \
  define(name, int, __VA_ARGS__) define(name##_64, std::int64_t, __VA_ARGS__)

#define GPUPOOL_GEMM(name, Int, type, sum)                                                                   \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,      \
                                  const void* a, Int lda, const void* b, Int ldb, const void* beta, void* c, \
                                  Int ldc) {                                                                 \
    return gemm(handle, {ta, tb, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}}, type, type, type,      \
                sum);                                                                                        \
  }
#define GPUPOOL_GEMM_STRIDED(name, Int, type, sum)                                                         \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,    \
                                  const void* a, Int lda, long long stride_a, const void* b, Int ldb,      \
                                  long long stride_b, const void* beta, void* c, Int ldc,                  \
                                  long long stride_c, Int batch) {                                         \
    return gemm(                                                                                           \
        handle,                                                                                            \
        {ta, tb, m, n, k, alpha, {a, lda, stride_a}, {b, ldb, stride_b}, beta, {c, ldc, stride_c}, batch}, \
        type, type, type, sum);                                                                            \
  }
#define GPUPOOL_GEMM_BATCHED(name, Int, type, sum)                                                       \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,  \
                                  const void* const* a, Int lda, const void* const* b, Int ldb,          \
                                  const void* beta, void* const* c, Int ldc, Int batch) {                \
    return gemm(handle, {ta, tb, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}, batch, true}, type, \
                type, type, sum);                                                                        \
  }
#define GPUPOOL_GEMM_ALL(letter, suffix, type, sum)                                          \
  GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM, cublas##letter##gemm##suffix, type, (sum))               \
  GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_STRIDED, cublas##letter##gemmStridedBatched, type, (sum)) \
  GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_BATCHED, cublas##letter##gemmBatched, type, (sum))

constexpr Sums half_sums{Element::f32, Element::f16, 64}, single_sums{Element::f32, Element::f32, 68},
    double_sums{Element::f64, Element::f64, 70}, complex_sums{Element::f32, Element::c32, 68},
    double_complex_sums{Element::f64, Element::c64, 70};

GPUPOOL_GEMM_ALL(H, , Element::f16, half_sums)
GPUPOOL_GEMM_ALL(S, _v2, Element::f32, single_sums)
GPUPOOL_GEMM_ALL(D, _v2, Element::f64, double_sums)
GPUPOOL_GEMM_ALL(C, _v2, Element::c32, complex_sums)
GPUPOOL_GEMM_ALL(Z, _v2, Element::c64, double_complex_sums)
// Three products of real matrices in place of four: a way to compute it, not another result.
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM, cublasCgemm3m, Element::c32, complex_sums)
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM, cublasZgemm3m, Element::c64, double_complex_sums)
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_STRIDED, cublasCgemm3mStridedBatched, Element::c32, complex_sums)
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_BATCHED, cublasCgemm3mBatched, Element::c32, complex_sums)

// Types of their own for each matrix.
#define GPUPOOL_GEMM_EX(name, Int)                                                                        \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,   \
                                  const void* a, int type_a, Int lda, const void* b, int type_b, Int ldb, \
                                  const void* beta, void* c, int type_c, Int ldc, int compute, int) {     \
    return gemm_of_types(handle, {ta, tb, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}}, type_a,    \
                         type_b, type_c, compute);                                                        \
  }
GPUPOOL_GEMM_EX(cublasGemmEx, int)
GPUPOOL_GEMM_EX(cublasGemmEx_64, std::int64_t)

#define GPUPOOL_GEMM_STRIDED_EX(name, Int)                                                                 \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,    \
                                  const void* a, int type_a, Int lda, long long stride_a, const void* b,   \
                                  int type_b, Int ldb, long long stride_b, const void* beta, void* c,      \
                                  int type_c, Int ldc, long long stride_c, Int batch, int compute, int) {  \
    return gemm_of_types(                                                                                  \
        handle,                                                                                            \
        {ta, tb, m, n, k, alpha, {a, lda, stride_a}, {b, ldb, stride_b}, beta, {c, ldc, stride_c}, batch}, \
        type_a, type_b, type_c, compute);                                                                  \
  }
GPUPOOL_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx, int)
GPUPOOL_GEMM_STRIDED_EX(cublasGemmStridedBatchedEx_64, std::int64_t)

#define GPUPOOL_GEMM_BATCHED_EX(name, Int)                                                                  \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,     \
                                  const void* const* a, int type_a, Int lda, const void* const* b,          \
                                  int type_b, Int ldb, const void* beta, void* const* c, int type_c,        \
                                  Int ldc, Int batch, int compute, int) {                                   \
    return gemm_of_types(handle, {ta, tb, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}, batch, true}, \
                         type_a, type_b, type_c, compute);                                                  \
  }
GPUPOOL_GEMM_BATCHED_EX(cublasGemmBatchedEx, int)
GPUPOOL_GEMM_BATCHED_EX(cublasGemmBatchedEx_64, std::int64_t)

// S and C with narrower matrices; sums are single.
#define GPUPOOL_GEMM_NARROW(name, Int, sums)                                                              \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, int ta, int tb, Int m, Int n, Int k, const void* alpha,   \
                                  const void* a, int type_a, Int lda, const void* b, int type_b, Int ldb, \
                                  const void* beta, void* c, int type_c, Int ldc) {                       \
    if (!known(type_a) || !known(type_b) || !known(type_c)) return not_supported;                         \
    return gemm(handle, {ta, tb, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}},                     \
                static_cast<Element>(type_a), static_cast<Element>(type_b), static_cast<Element>(type_c), \
                sums);                                                                                    \
  }
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_NARROW, cublasSgemmEx, (single_sums))
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_NARROW, cublasCgemmEx, (complex_sums))

namespace {

// Groups of products: each is a batch of its own shape. Everything of a group is in host memory but the lists
// of matrices, which follow each other.
template <class Int>
struct Groups {
  const int *transpose_a, *transpose_b;
  const Int *m, *n, *k;
  const char* alpha;
  const void* const* a;
  const Int* lda;
  const void* const* b;
  const Int* ldb;
  const char* beta;
  void* const* c;
  const Int* ldc;
  Int count;
  const Int* sizes;
};

template <class Int>
int grouped(void* handle, const Groups<Int>& groups, int type_a, int type_b, int type_c,
            const std::optional<Sums>& sums) {
  const Handle* const found = find(handle);
  if (found == nullptr) return not_initialized;
  if (groups.count < 0) return invalid_value;
  if (groups.count == 0) return success;
  for (const void* const list :
       {static_cast<const void*>(groups.transpose_a), static_cast<const void*>(groups.transpose_b),
        static_cast<const void*>(groups.m), static_cast<const void*>(groups.n),
        static_cast<const void*>(groups.k), static_cast<const void*>(groups.alpha),
        static_cast<const void*>(groups.lda), static_cast<const void*>(groups.ldb),
        static_cast<const void*>(groups.beta), static_cast<const void*>(groups.ldc),
        static_cast<const void*>(groups.sizes)}) {
    if (list == nullptr) return invalid_value;
  }
  if (!sums || !known(type_a) || !known(type_b) || !known(type_c) || found->pointer_mode == device)
    return not_supported;
  const std::size_t bytes = gpupool::operations::bytes_of(sums->scalar);
  const auto call_of = [&](Int group, std::int64_t before) {
    const auto at = static_cast<std::size_t>(group);
    return Call{groups.transpose_a[at],
                groups.transpose_b[at],
                groups.m[at],
                groups.n[at],
                groups.k[at],
                groups.alpha + at * bytes,
                {groups.a + before, groups.lda[at]},
                {groups.b + before, groups.ldb[at]},
                groups.beta + at * bytes,
                {groups.c + before, groups.ldc[at]},
                groups.sizes[at],
                true};
  };
  // A wrong group keeps all from being posted.
  for (Int group = 0; group < groups.count; ++group) {
    if (!valid(call_of(group, 0))) return invalid_value;
  }
  std::int64_t before = 0;
  for (Int group = 0; group < groups.count; ++group) {
    const int bad = gemm(handle, call_of(group, before), static_cast<Element>(type_a),
                         static_cast<Element>(type_b), static_cast<Element>(type_c), sums);
    if (bad != success) return bad;
    before += groups.sizes[static_cast<std::size_t>(group)];
  }
  return success;
}

}  // namespace

#define GPUPOOL_GEMM_GROUPED(name, Int, type, sums)                                                       \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, const int* ta, const int* tb, const Int* m, const Int* n, \
                                  const Int* k, const void* alpha, const void* const* a, const Int* lda,  \
                                  const void* const* b, const Int* ldb, const void* beta, void* const* c, \
                                  const Int* ldc, Int count, const Int* sizes) {                          \
    return grouped<Int>(handle,                                                                           \
                        {ta, tb, m, n, k, static_cast<const char*>(alpha), a, lda, b, ldb,                \
                         static_cast<const char*>(beta), c, ldc, count, sizes},                           \
                        type, type, type, sums);                                                          \
  }
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_GROUPED, cublasSgemmGroupedBatched, 0, (single_sums))
GPUPOOL_BOTH_WIDTHS(GPUPOOL_GEMM_GROUPED, cublasDgemmGroupedBatched, 1, (double_sums))

#define GPUPOOL_GEMM_GROUPED_EX(name, Int)                                                                 \
  GPUPOOL_LIBRARY_EXPORT int name(void* handle, const int* ta, const int* tb, const Int* m, const Int* n,  \
                                  const Int* k, const void* alpha, const void* const* a, int type_a,       \
                                  const Int* lda, const void* const* b, int type_b, const Int* ldb,        \
                                  const void* beta, void* const* c, int type_c, const Int* ldc, Int count, \
                                  const Int* sizes, int compute) {                                         \
    return grouped<Int>(handle,                                                                            \
                        {ta, tb, m, n, k, static_cast<const char*>(alpha), a, lda, b, ldb,                 \
                         static_cast<const char*>(beta), c, ldc, count, sizes},                            \
                        type_a, type_b, type_c, sums_of(compute, static_cast<Element>(type_c)));           \
  }
GPUPOOL_GEMM_GROUPED_EX(cublasGemmGroupedBatchedEx, int)
GPUPOOL_GEMM_GROUPED_EX(cublasGemmGroupedBatchedEx_64, std::int64_t)
