// The functions of cuBLAS and cuBLASLt that operations need, by their C interfaces.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpupool::worker {

/// cublasStatus_t as a result of the driver.
inline CUresult result_of_cublas(int status) {
  switch (status) {
    case 0:
      return CUDA_SUCCESS;
    case 3:  // ALLOC_FAILED
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 7:  // INVALID_VALUE
      return CUDA_ERROR_INVALID_VALUE;
    case 8:  // ARCH_MISMATCH, NOT_SUPPORTED
    case 15:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

#define GPUPOOL_CUBLAS(X)                                                                                    \
  X(cublasCreate_v2, (void** handle))                                                                        \
  X(cublasDestroy_v2, (void* handle))                                                                        \
  X(cublasSetStream_v2, (void* handle, CUstream stream))                                                     \
  X(cublasSetPointerMode_v2, (void* handle, int mode))                                                       \
  X(cublasSetWorkspace_v2, (void* handle, void* workspace, std::size_t bytes))                               \
  X(cublasGemmStridedBatchedEx_64,                                                                           \
    (void* handle, int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,        \
     const void* a, int type_a, std::int64_t lda, long long stride_a, const void* b, int type_b,             \
     std::int64_t ldb, long long stride_b, const void* beta, void* c, int type_c, std::int64_t ldc,          \
     long long stride_c, std::int64_t batch, int compute, int algorithm))                                    \
  X(cublasGemmBatchedEx_64,                                                                                  \
    (void* handle, int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,        \
     const void* const* a, int type_a, std::int64_t lda, const void* const* b, int type_b, std::int64_t ldb, \
     const void* beta, void* const* c, int type_c, std::int64_t ldc, std::int64_t batch, int compute,        \
     int algorithm))

#define GPUPOOL_CUBLASLT(X)                                                                                 \
  X(cublasLtCreate, (void** handle))                                                                        \
  X(cublasLtDestroy, (void* handle))                                                                        \
  X(cublasLtMatmulDescCreate, (void** made, int compute, int scale))                                        \
  X(cublasLtMatmulDescDestroy, (void* descriptor))                                                          \
  X(cublasLtMatmulDescSetAttribute, (void* descriptor, int id, const void* value, std::size_t bytes))       \
  X(cublasLtMatrixLayoutCreate,                                                                             \
    (void** made, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading))               \
  X(cublasLtMatrixLayoutDestroy, (void* descriptor))                                                        \
  X(cublasLtMatrixLayoutSetAttribute, (void* descriptor, int id, const void* value, std::size_t bytes))     \
  X(cublasLtMatmulPreferenceCreate, (void** made))                                                          \
  X(cublasLtMatmulPreferenceDestroy, (void* descriptor))                                                    \
  X(cublasLtMatmulPreferenceSetAttribute, (void* descriptor, int id, const void* value, std::size_t bytes)) \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                         \
    (void* handle, const void* product, const void* a, const void* b, const void* c, const void* d,         \
     const void* preference, int wanted, void* results, int* found))                                        \
  X(cublasLtMatmul, (void* handle, const void* product, const void* alpha, const void* a,                   \
                     const void* layout_a, const void* b, const void* layout_b, const void* beta,           \
                     const void* c, const void* layout_c, void* d, const void* layout_d,                    \
                     const void* algorithm, void* workspace, std::size_t workspace_bytes, CUstream stream))

#define GPUPOOL_MEMBER(name, parameters) int(*name) parameters = nullptr;
struct CublasApi {
  GPUPOOL_CUBLAS(GPUPOOL_MEMBER)
};
struct CublasLtApi {
  GPUPOOL_CUBLASLT(GPUPOOL_MEMBER)
};
#undef GPUPOOL_MEMBER

}  // namespace gpupool::worker
