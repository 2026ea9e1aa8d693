// Stands in for NVIDIA's cuBLAS and cuBLASLt beside a worker: it computes nothing, and writes what it is told
// of each product. Of the algorithms that it names, the first refuses every product and the second has failed.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { invalid_value = 7, not_supported = 15 };

struct result {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

static int make(void **made) {
  static int one;
  *made = &one;
  return 0;
}
static int record(const char *what, int attribute, int64_t value) {
  FILE *const file = fopen(getenv("RECORDED_PRODUCTS"), "a");
  fprintf(file, "%s %d %" PRId64 "\n", what, attribute, value);
  return fclose(file);
}
static int64_t number(const void *value, size_t bytes) {
  switch (bytes) {
    case 1:
      return *(const int8_t *)value;
    case 4:
      return *(const int32_t *)value;
    default:
      return *(const int64_t *)value;
  }
}

int cublasCreate_v2(void **handle) { return make(handle); }
int cublasDestroy_v2(void *handle) { return 0; }
int cublasSetStream_v2(void *handle, void *stream) { return 0; }
int cublasSetPointerMode_v2(void *handle, int mode) { return 0; }
int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) { return 0; }
int cublasSetMathMode(void *handle, int mode) { return record("math", 0, mode); }
int cublasSetSmCountTarget(void *handle, int count) { return record("multiprocessors", 0, count); }
int cublasGemmStridedBatchedEx_64(void *handle, int transpose_a, int transpose_b, int64_t m, int64_t n,
                                  int64_t k, const void *alpha, const void *a, int type_a, int64_t lda,
                                  long long stride_a, const void *b, int type_b, int64_t ldb,
                                  long long stride_b, const void *beta, void *c, int type_c, int64_t ldc,
                                  long long stride_c, int64_t batch, int compute, int algorithm) {
  return record("gemm", 0, compute);
}

int cublasLtCreate(void **handle) { return make(handle); }
int cublasLtDestroy(void *handle) { return 0; }
int cublasLtMatmulDescCreate(void **descriptor, int compute, int scale) { return make(descriptor); }
int cublasLtMatmulDescDestroy(void *descriptor) { return 0; }
int cublasLtMatmulDescSetAttribute(void *descriptor, int attribute, const void *value, size_t bytes) {
  return record("product", attribute, number(value, bytes));
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  return make(layout);
}
int cublasLtMatrixLayoutDestroy(void *layout) { return 0; }
int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
  return 0;
}
int cublasLtMatmulPreferenceCreate(void **preference) { return make(preference); }
int cublasLtMatmulPreferenceDestroy(void *preference) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
  return record("preference", attribute, number(value, bytes));
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, struct result *results, int *found) {
  *found = 0;
  for (; *found < 3 && *found < wanted; ++*found) {
    struct result one = {{(uint64_t)*found + 1}, 0, *found == 1 ? not_supported : 0, 1, {0}};
    results[*found] = one;
  }
  return record("question", 0, wanted);
}
int cublasLtMatmul(void *handle, void *product, const void *alpha, const void *a, void *layout_a,
                   const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, void *d,
                   void *layout_d, const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
  record("multiply", 0, (int64_t)algorithm[0]);
  return algorithm[0] == 1 ? invalid_value : 0;
}
