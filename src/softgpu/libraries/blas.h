// BLAS and LAPACK of the CPU: OpenBLAS, where there is one, else plain loops. An operation is divided by its
// parts, in the same way with any number of threads, so results do not depend on how many there are.
#pragma once

#include <complex>
#include <cstdint>

namespace softgpu::libraries {

/// The numbers of CBLAS_TRANSPOSE.
enum class Trans : int { none = 111, transpose = 112, conjugate_transpose = 113, conjugate = 114 };

/// C = alpha · op(A) · op(B) + beta · C in column order; C is not read where beta is 0.
/// T: float, double, std::complex of them.
template <class T>
void gemm(Trans a, Trans b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A,
          std::int64_t lda, const T* B, std::int64_t ldb, T beta, T* C, std::int64_t ldc);

/// A function of the BLAS library by its CBLAS or LAPACK name without suffix, such as "cblas_sgemm"; null:
/// there is none. Its integers are 64 bits wide.
void* blas_function(const char* name);

}  // namespace softgpu::libraries
