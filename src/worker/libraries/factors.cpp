// Factorisations of batches by cuBLAS.
#include "libraries/operations/factors.h"

#include "worker/libraries/blas.h"

namespace gpupool::worker {

using operations::Factoring;
using operations::Factors;

CUresult run(const Execution& x, const Factors& of) {
  const auto letter = letter_of(of.type);
  constexpr std::int64_t most = 0x7fffffff;  // these functions take no more
  if (!letter) return CUDA_ERROR_NOT_SUPPORTED;
  for (const std::int64_t size : {of.m, of.n, of.columns, of.lda, of.ldb, of.batch}) {
    if (size < 0 || size > most) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto narrow = [](std::int64_t size) { return static_cast<int>(size); };
  const int m = narrow(of.m), n = narrow(of.n), columns = narrow(of.columns), lda = narrow(of.lda),
            ldb = narrow(of.ldb), batch = narrow(of.batch);
  void *const *const a = pointer<void* const>(of.a), *const *const b = pointer<void* const>(of.b);
  const auto* const matrices = pointer<const void* const>(of.a);
  int *const pivots = pointer<int>(of.pivots), *const info = pointer<int>(of.info);
  int argument = 0;  // which one is wrong: the client has looked at them
  Blas blas(x, false);
  const auto call = [&](const char* routine, auto... arguments) {
    blas.call(blas_name(*letter, routine), arguments...);
  };
  switch (of.what) {
    case Factoring::lu:
      call("getrfBatched", n, a, lda, pivots, info, batch);
      break;
    case Factoring::lu_solve:
      call("getrsBatched", static_cast<int>(of.transpose), n, columns, matrices, lda,
           static_cast<const int*>(pivots), b, ldb, &argument, batch);
      break;
    case Factoring::lu_inverse:
      call("getriBatched", n, matrices, lda, static_cast<const int*>(pivots), b, ldb, info, batch);
      break;
    case Factoring::inverse:
      call("matinvBatched", n, matrices, lda, b, ldb, info, batch);
      break;
    case Factoring::qr:
      call("geqrfBatched", m, n, a, lda, b, &argument, batch);
      break;
    case Factoring::least_squares:
      call("gelsBatched", 0, m, n, columns, a, lda, b, ldb, &argument, info, batch);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return blas.result();
}

}  // namespace gpupool::worker
