// Matrix products by cuBLAS, and by cuBLASLt what only it can do.
#include "libraries/operations/gemm.h"

#include <dlfcn.h>

#include <cstring>

#include "worker/libraries/cublas_api.h"
#include "worker/libraries/in_context.h"

namespace gpupool::worker {
namespace {

using operations::Gemm;
using operations::Matrix;
using operations::Scalar;

/// The functions of a library; null and `missing` when one is not there.
template <class Api>
std::unique_ptr<Api> functions_of(void* library, std::string& missing);

#define GPUPOOL_FIND(name, parameters)                                      \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(library, #name)); \
  if (api->name == nullptr) {                                               \
    missing = "NVIDIA's library on this node is too old: it has no " #name; \
    return nullptr;                                                         \
  }
template <>
std::unique_ptr<CublasApi> functions_of(void* library, std::string& missing) {
  auto api = std::make_unique<CublasApi>();
  GPUPOOL_CUBLAS(GPUPOOL_FIND)
  return api;
}
template <>
std::unique_ptr<CublasLtApi> functions_of(void* library, std::string& missing) {
  auto api = std::make_unique<CublasLtApi>();
  GPUPOOL_CUBLASLT(GPUPOOL_FIND)
  return api;
}
#undef GPUPOOL_FIND

template <class T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

const void* factor(const Scalar& scalar, bool on_device) {
  return on_device ? pointer<const void>(scalar.words[0]) : scalar.words;
}

/// Descriptors of one call of cuBLASLt.
class Descriptors {
 public:
  explicit Descriptors(const CublasLtApi& api) : api_(api) {}
  ~Descriptors() {
    if (product != nullptr) api_.cublasLtMatmulDescDestroy(product);
    if (preference != nullptr) api_.cublasLtMatmulPreferenceDestroy(preference);
    for (void* const layout : layouts) {
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
    }
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int describe(const Gemm& operation) {
    status_ = api_.cublasLtMatmulDescCreate(&product, operation.compute, static_cast<int>(operation.scalar));
    if (status_ != 0) return status_;
    // The numbers of cublasLtMatmulDescAttributes_t.
    // ALPHA_DEVICE_VECTOR_BETA_HOST, DEVICE, HOST.
    set(2, operation.alpha_per_row ? 4 : operation.scalars_on_device ? 1 : 0);
    set(3, static_cast<int>(operation.transpose_a));
    set(4, static_cast<int>(operation.transpose_b));
    set(7, operation.epilogue);
    if ((operation.epilogue & operations::epilogue_bias) != 0) {
      set(8, operation.bias);
      set(10, operation.bias_stride);
      set(26, static_cast<int>(operation.bias_type));
    }
    if (operation.scale_a != 0) set(17, operation.scale_a);
    if (operation.scale_b != 0) set(18, operation.scale_b);
    if (operation.scale_c != 0) set(19, operation.scale_c);
    if (operation.scale_d != 0) set(20, operation.scale_d);
    const auto shape = [](bool turned, std::int64_t rows, std::int64_t columns) {
      return turned ? std::pair(columns, rows) : std::pair(rows, columns);
    };
    const auto [rows_a, columns_a] =
        shape(operation.transpose_a != operations::Transpose::none, operation.m, operation.k);
    const auto [rows_b, columns_b] =
        shape(operation.transpose_b != operations::Transpose::none, operation.k, operation.n);
    layout(0, operation.a, rows_a, columns_a, operation.batch);
    layout(1, operation.b, rows_b, columns_b, operation.batch);
    layout(2, operation.c, operation.m, operation.n, operation.batch);
    layout(3, operation.d, operation.m, operation.n, operation.batch);
    if (status_ == 0) status_ = api_.cublasLtMatmulPreferenceCreate(&preference);
    if (status_ == 0) {
      status_ = api_.cublasLtMatmulPreferenceSetAttribute(preference, 1, &operation.workspace_bytes,
                                                          sizeof operation.workspace_bytes);
    }
    return status_;
  }

  void* product = nullptr;
  void* preference = nullptr;
  void* layouts[4] = {};

 private:
  template <class T>
  void set(int id, const T& value) {
    if (status_ == 0) status_ = api_.cublasLtMatmulDescSetAttribute(product, id, &value, sizeof value);
  }
  void layout(int index, const Matrix& matrix, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
    if (status_ != 0) return;
    void*& made = layouts[index];
    status_ = api_.cublasLtMatrixLayoutCreate(&made, static_cast<int>(matrix.type),
                                              static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), matrix.leading);
    const auto set_layout = [&](int id, const auto& value) {
      if (status_ == 0) status_ = api_.cublasLtMatrixLayoutSetAttribute(made, id, &value, sizeof value);
    };
    set_layout(1, static_cast<std::int32_t>(matrix.by_row ? 1 : 0));
    set_layout(5, static_cast<std::int32_t>(batch));
    set_layout(6, matrix.stride);
  }

  const CublasLtApi& api_;
  int status_ = 0;
};

/// cublasLtMatmulHeuristicResult_t.
struct Heuristic {
  std::array<std::uint64_t, 8> algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

/// Equal for products that the same algorithm computes.
std::string shape_of(Gemm operation) {
  for (Matrix* const matrix : {&operation.a, &operation.b, &operation.c, &operation.d}) {
    matrix->address &= 255;  // its alignment counts
  }
  operation.alpha = operation.beta = {};
  operation.bias &= 255;
  operation.workspace = 0;
  return {reinterpret_cast<const char*>(&operation), sizeof operation};
}

}  // namespace

CUresult GemmCall::by_cublas(const Gemm& operation) {
  if (libraries.cublas_ == nullptr) {
    void* const library = libraries.open("libcublas");
    if (library == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    libraries.cublas_ = functions_of<CublasApi>(library, libraries.why_);
    if (libraries.cublas_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CublasApi& api = *libraries.cublas_;
  int status = in.cublas != nullptr ? 0 : api.cublasCreate_v2(&in.cublas);
  if (status == 0) status = api.cublasSetStream_v2(in.cublas, stream);
  if (status == 0) status = api.cublasSetPointerMode_v2(in.cublas, operation.scalars_on_device ? 1 : 0);
  if (status == 0 && operation.workspace_bytes != 0) {
    status =
        api.cublasSetWorkspace_v2(in.cublas, pointer<void>(operation.workspace), operation.workspace_bytes);
  }
  if (status != 0) return result_of_cublas(status);
  constexpr int default_algorithm = -1;
  const auto type = [](const Matrix& matrix) { return static_cast<int>(matrix.type); };
  const void* const alpha = factor(operation.alpha, operation.scalars_on_device);
  const void* const beta = factor(operation.beta, operation.scalars_on_device);
  const auto [ta, tb] =
      std::pair(static_cast<int>(operation.transpose_a), static_cast<int>(operation.transpose_b));
  if (operation.a.pointers) {
    status = api.cublasGemmBatchedEx_64(
        in.cublas, ta, tb, operation.m, operation.n, operation.k, alpha,
        pointer<const void* const>(operation.a.address), type(operation.a), operation.a.leading,
        pointer<const void* const>(operation.b.address), type(operation.b), operation.b.leading, beta,
        pointer<void* const>(operation.c.address), type(operation.c), operation.c.leading, operation.batch,
        operation.compute, default_algorithm);
  } else {
    status = api.cublasGemmStridedBatchedEx_64(
        in.cublas, ta, tb, operation.m, operation.n, operation.k, alpha,
        pointer<const void>(operation.a.address), type(operation.a), operation.a.leading, operation.a.stride,
        pointer<const void>(operation.b.address), type(operation.b), operation.b.leading, operation.b.stride,
        beta, pointer<void>(operation.c.address), type(operation.c), operation.c.leading, operation.c.stride,
        operation.batch, operation.compute, default_algorithm);
  }
  return result_of_cublas(status);
}

CUresult GemmCall::by_cublaslt(const Gemm& operation) {
  if (libraries.cublaslt_ == nullptr) {
    void* const library = libraries.open("libcublasLt");
    if (library == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    libraries.cublaslt_ = functions_of<CublasLtApi>(library, libraries.why_);
    if (libraries.cublaslt_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CublasLtApi& api = *libraries.cublaslt_;
  if (in.cublaslt == nullptr) {
    if (const int bad = api.cublasLtCreate(&in.cublaslt); bad != 0) return result_of_cublas(bad);
  }
  Descriptors of(api);
  if (const int bad = of.describe(operation); bad != 0) return result_of_cublas(bad);
  const auto [known, is_new] = in.algorithms.try_emplace(shape_of(operation));
  if (is_new) {
    Heuristic best{};
    int found = 0;
    int bad =
        api.cublasLtMatmulAlgoGetHeuristic(in.cublaslt, of.product, of.layouts[0], of.layouts[1],
                                           of.layouts[2], of.layouts[3], of.preference, 1, &best, &found);
    if (bad == 0 && found == 0) bad = 15;
    if (bad != 0) {
      in.algorithms.erase(known);
      return result_of_cublas(bad);
    }
    known->second = best.algorithm;
  }
  return result_of_cublas(api.cublasLtMatmul(
      in.cublaslt, of.product,
      factor(operation.alpha, operation.scalars_on_device || operation.alpha_per_row),
      pointer<const void>(operation.a.address), of.layouts[0], pointer<const void>(operation.b.address),
      of.layouts[1], factor(operation.beta, operation.scalars_on_device),
      pointer<const void>(operation.c.address), of.layouts[2], pointer<void>(operation.d.address),
      of.layouts[3], known->second.data(), pointer<void>(operation.workspace), operation.workspace_bytes,
      stream));
}

}  // namespace gpupool::worker
