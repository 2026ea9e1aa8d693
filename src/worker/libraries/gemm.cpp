// Matrix products by cuBLAS, and by cuBLASLt what only it can do.
#include "libraries/operations/gemm.h"

#include "worker/libraries/blas.h"

namespace gpupool::worker {
namespace {

using operations::Gemm;
using operations::Matrix;
using operations::Scalar;

const void* factor(const Scalar& scalar, bool on_device) {
  return on_device ? pointer<const void>(scalar.words[0]) : scalar.words;
}

/// Descriptors of one call of cuBLASLt.
class Descriptors {
 public:
  explicit Descriptors(Library& library) : library_(library) {}
  ~Descriptors() {
    if (product != nullptr) library_.call("cublasLtMatmulDescDestroy", product);
    if (preference != nullptr) library_.call("cublasLtMatmulPreferenceDestroy", preference);
    for (void* const layout : layouts) {
      if (layout != nullptr) library_.call("cublasLtMatrixLayoutDestroy", layout);
    }
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int describe(const Gemm& operation) {
    status_ = library_.call("cublasLtMatmulDescCreate", &product, operation.compute,
                            static_cast<int>(operation.scalar));
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
    if (status_ == 0) status_ = library_.call("cublasLtMatmulPreferenceCreate", &preference);
    if (status_ == 0) {
      status_ = library_.call("cublasLtMatmulPreferenceSetAttribute", preference, 1,
                              &operation.workspace_bytes, sizeof operation.workspace_bytes);
    }
    return status_;
  }

  void* product = nullptr;
  void* preference = nullptr;
  void* layouts[4] = {};

 private:
  template <class T>
  void set(int id, const T& value) {
    if (status_ == 0)
      status_ = library_.call("cublasLtMatmulDescSetAttribute", product, id, &value, sizeof value);
  }
  void layout(int index, const Matrix& matrix, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
    if (status_ != 0) return;
    void*& made = layouts[index];
    status_ =
        library_.call("cublasLtMatrixLayoutCreate", &made, static_cast<int>(matrix.type),
                      static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), matrix.leading);
    const auto set_layout = [&](int id, const auto& value) {
      if (status_ == 0)
        status_ = library_.call("cublasLtMatrixLayoutSetAttribute", made, id, &value, sizeof value);
    };
    set_layout(1, static_cast<std::int32_t>(matrix.by_row ? 1 : 0));
    set_layout(5, static_cast<std::int32_t>(batch));
    set_layout(6, matrix.stride);
  }

  Library& library_;
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
std::string shape_of(const Gemm& of) {
  return key_of(of, [](Gemm& operation) {
    for (Matrix* const matrix : {&operation.a, &operation.b, &operation.c, &operation.d}) {
      matrix->address &= 255;  // its alignment counts
    }
    operation.alpha = operation.beta = {};
    operation.bias &= 255;
    operation.workspace = 0;
  });
}

CUresult by_cublas(const Execution& x, const Gemm& of) {
  Blas blas(x, of.scalars_on_device != 0);
  if (of.workspace_bytes != 0)
    blas.call("cublasSetWorkspace_v2", pointer<void>(of.workspace),
              static_cast<std::size_t>(of.workspace_bytes));
  constexpr int default_algorithm = -1;
  const auto type = [](const Matrix& matrix) { return static_cast<int>(matrix.type); };
  const void* const alpha = factor(of.alpha, of.scalars_on_device);
  const void* const beta = factor(of.beta, of.scalars_on_device);
  const int ta = static_cast<int>(of.transpose_a), tb = static_cast<int>(of.transpose_b);
  if (of.a.pointers) {
    blas.call("cublasGemmBatchedEx_64", ta, tb, of.m, of.n, of.k, alpha,
              pointer<const void* const>(of.a.address), type(of.a), of.a.leading,
              pointer<const void* const>(of.b.address), type(of.b), of.b.leading, beta,
              pointer<void* const>(of.c.address), type(of.c), of.c.leading, of.batch, of.compute,
              default_algorithm);
  } else {
    const auto stride = [](const Matrix& matrix) { return static_cast<long long>(matrix.stride); };
    blas.call("cublasGemmStridedBatchedEx_64", ta, tb, of.m, of.n, of.k, alpha,
              pointer<const void>(of.a.address), type(of.a), of.a.leading, stride(of.a),
              pointer<const void>(of.b.address), type(of.b), of.b.leading, stride(of.b), beta,
              pointer<void>(of.c.address), type(of.c), of.c.leading, stride(of.c), of.batch, of.compute,
              default_algorithm);
  }
  return blas.result();
}

CUresult by_cublaslt(const Execution& x, const Gemm& operation) {
  Library& library = x.libraries.cublaslt;
  if (x.state.cublaslt == nullptr) {
    if (const int bad = library.call("cublasLtCreate", &x.state.cublaslt); bad != 0)
      return result_of_cublas(bad);
  }
  Descriptors of(library);
  if (const int bad = of.describe(operation); bad != 0) return result_of_cublas(bad);
  const auto [known, is_new] = x.state.algorithms.try_emplace(shape_of(operation));
  if (is_new) {
    Heuristic best{};
    int found = 0;
    int bad = library.call("cublasLtMatmulAlgoGetHeuristic", x.state.cublaslt, of.product, of.layouts[0],
                           of.layouts[1], of.layouts[2], of.layouts[3], of.preference, 1, &best, &found);
    if (bad == 0 && found == 0) bad = 15;
    if (bad != 0) {
      x.state.algorithms.erase(known);
      return result_of_cublas(bad);
    }
    known->second = best.algorithm;
  }
  const auto place = [](const Matrix& matrix) { return pointer<void>(matrix.address); };
  return result_of_cublas(library.call(
      "cublasLtMatmul", x.state.cublaslt, of.product,
      factor(operation.alpha, operation.scalars_on_device || operation.alpha_per_row), place(operation.a),
      of.layouts[0], place(operation.b), of.layouts[1], factor(operation.beta, operation.scalars_on_device),
      place(operation.c), of.layouts[2], place(operation.d), of.layouts[3], known->second.data(),
      pointer<void>(operation.workspace), static_cast<std::size_t>(operation.workspace_bytes), x.stream));
}

}  // namespace

CUresult run(const Execution& x, const Gemm& operation) {
  const bool plain = operation.epilogue == operations::epilogue_none && !operation.alpha_per_row &&
                     operation.scale_a == 0 && operation.scale_b == 0 && operation.scale_c == 0 &&
                     operation.scale_d == 0 && operation.c.address == operation.d.address &&
                     operation.c.leading == operation.d.leading && operation.c.stride == operation.d.stride &&
                     operation.c.type == operation.d.type && operation.c.pointers == operation.d.pointers &&
                     !operation.a.by_row && !operation.b.by_row && !operation.c.by_row && !operation.d.by_row;
  return plain ? by_cublas(x, operation) : by_cublaslt(x, operation);
}

}  // namespace gpupool::worker
