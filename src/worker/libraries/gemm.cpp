// Matrix products by cuBLAS, and by cuBLASLt what only it can do.
#include "libraries/operations/gemm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "worker/libraries/blas.h"
#include "worker/libraries/workspace.h"

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
  /// Of cublasStatus_t: it does not have the product. A call that returns one has launched nothing.
  static constexpr int invalid_value = 7, not_supported = 15;

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
    describe_product(operation);
    describe_layouts(operation);
    describe_preference(operation);
    return status_;
  }

  void* product = nullptr;
  void* preference = nullptr;
  void* layouts[4] = {};

 private:
  /// The numbers of cublasLtMatmulDescAttributes_t.
  void describe_product(const Gemm& operation) {
    status_ = library_.call("cublasLtMatmulDescCreate", &product, operation.compute,
                            static_cast<int>(operation.scalar));
    // ALPHA_DEVICE_VECTOR_BETA_HOST, DEVICE, HOST.
    set(2, operation.alpha_per_row ? 4 : operation.scalars_on_device ? 1 : 0);
    set(3, static_cast<int>(operation.transpose_a));
    set(4, static_cast<int>(operation.transpose_b));
    set(7, operation.epilogue);
    if (operation.has_vector()) {
      set(8, operation.bias);
      set(10, operation.bias_stride);
      set(26, static_cast<int>(operation.bias_type));
    }
    if (operation.has(operations::epilogue_auxiliary)) describe_auxiliary(operation);
    if (operation.multiprocessors != 0) set(15, operation.multiprocessors);
    if (operation.scale_a != 0) set(17, operation.scale_a);
    if (operation.scale_b != 0) set(18, operation.scale_b);
    if (operation.scale_c != 0) set(19, operation.scale_c);
    if (operation.scale_d != 0) set(20, operation.scale_d);
    if (operation.largest_d != 0) set(21, operation.largest_d);
    if (operation.fast_sums) set(25, std::int8_t{1});
    set_scaling(31, operation.scaling_a);
    set_scaling(32, operation.scaling_b);
  }

  void describe_auxiliary(const Gemm& operation) {
    const Matrix& auxiliary = operation.auxiliary;
    set(11, auxiliary.address);
    set(12, auxiliary.leading);
    set(13, auxiliary.stride);
    // A mask has no type, and D's is taken unless there is another.
    if (!operation.has_mask() && auxiliary.type != operation.d.type)
      set(22, static_cast<int>(auxiliary.type));
    if (operation.scale_auxiliary != 0) set(23, operation.scale_auxiliary);
    if (operation.largest_auxiliary != 0) set(24, operation.largest_auxiliary);
  }

  void describe_layouts(const Gemm& operation) {
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
  }

  /// The numbers of cublasLtMatmulPreferenceAttributes_t.
  void describe_preference(const Gemm& operation) {
    if (status_ == 0) status_ = library_.call("cublasLtMatmulPreferenceCreate", &preference);
    prefer(1, operation.workspace_bytes);
    if (operation.reductions != operations::any_reduction) prefer(3, std::uint32_t{operation.reductions});
    // It takes for granted that every matrix lies at a multiple of 256 bytes, unless it is told.
    prefer(5, alignment(operation.a.address));
    prefer(6, alignment(operation.b.address));
    prefer(7, alignment(operation.c.address));
    // There is none for what is read or written beside D.
    const std::uint64_t vector = operation.has_vector() ? operation.bias : 0;
    const std::uint64_t auxiliary =
        operation.has(operations::epilogue_auxiliary) ? operation.auxiliary.address : 0;
    prefer(8, alignment(operation.d.address | vector | auxiliary));
  }

  /// Of an address: the power of two, up to 256, of which it is a multiple.
  static std::uint32_t alignment(std::uint64_t address) {
    const auto low = static_cast<std::uint32_t>(address & 255U) | 256U;
    return low & (~low + 1U);
  }

  template <class T>
  void set(int id, const T& value) {
    if (status_ == 0)
      status_ = library_.call("cublasLtMatmulDescSetAttribute", product, id, &value, sizeof value);
  }
  /// An older library knows no such attribute: then it does not support the product.
  void set_scaling(int id, operations::Scaling how) {
    if (how == operations::Scaling::tensor || status_ != 0) return;
    set(id, static_cast<std::int32_t>(how));
    if (status_ == invalid_value) status_ = not_supported;
  }
  template <class T>
  void prefer(int id, const T& value) {
    if (status_ == 0)
      status_ = library_.call("cublasLtMatmulPreferenceSetAttribute", preference, id, &value, sizeof value);
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
    // Of an address its alignment counts, and of one that may be none also whether there is one.
    for (Matrix* const matrix : {&operation.a, &operation.b, &operation.c, &operation.d}) {
      matrix->address &= 255;
    }
    for (std::uint64_t* const address :
         {&operation.bias, &operation.auxiliary.address, &operation.scale_a, &operation.scale_b,
          &operation.scale_c, &operation.scale_d, &operation.largest_d, &operation.scale_auxiliary,
          &operation.largest_auxiliary}) {
      if (*address != 0) *address = 256 | (*address & 255);
    }
    operation.alpha = operation.beta = {};
    operation.workspace = 0;
  });
}

/// What one product asks of cuBLAS's handle, which is that of every operation: afterwards it is as it was.
class HandleSettings {
 public:
  HandleSettings(const Execution& x, Blas& blas, const Gemm& of)
      : x_(x), whole_(of.reductions == operations::whole_reductions), fewer_(of.multiprocessors != 0) {
    constexpr int disallow_reduced_precision_reduction = 16;  // of cublasMath_t
    if (whole_) blas.call("cublasSetMathMode", disallow_reduced_precision_reduction);
    if (fewer_) blas.call("cublasSetSmCountTarget", static_cast<int>(of.multiprocessors));
  }
  ~HandleSettings() {
    if (x_.state.cublas == nullptr) return;
    if (whole_) x_.libraries.cublas.call("cublasSetMathMode", x_.state.cublas, 0);
    if (fewer_) x_.libraries.cublas.call("cublasSetSmCountTarget", x_.state.cublas, 0);
  }
  HandleSettings(const HandleSettings&) = delete;
  HandleSettings& operator=(const HandleSettings&) = delete;

 private:
  const Execution& x_;
  const bool whole_, fewer_;
};

CUresult by_cublas(const Execution& x, const Gemm& of) {
  Blas blas(x, of.scalars_on_device != 0);
  const HandleSettings settings(x, blas, of);
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

/// One product by cuBLASLt: by the algorithm that has computed one of its shape before, else by the first
/// that the library names and that does compute it.
class LtProduct {
 public:
  LtProduct(const Execution& x, const Gemm& of) : x_(x), of_(of), descriptors_(x.libraries.cublaslt) {}

  CUresult run() {
    if (const int bad = begin(); bad != 0) return result_of_cublas(bad);
    if (const int bad = descriptors_.describe(of_); bad != 0) return result_of_cublas(bad);
    const std::string shape = shape_of(of_);
    const auto known = x_.state.algorithms.find(shape);
    if (known != x_.state.algorithms.end()) {
      const int status = multiply(known->second);
      if (!is_refused(status)) return result_of_cublas(status);
    }
    return result_of_cublas(find_and_multiply(shape));
  }

 private:
  using Algorithm = std::array<std::uint64_t, 8>;  // cublasLtMatmulAlgo_t
  static constexpr int most_algorithms = 8;

  static bool is_refused(int status) {
    return status == Descriptors::invalid_value || status == Descriptors::not_supported;
  }

  int begin() {
    if (x_.state.cublaslt != nullptr) return 0;
    const Preparation::Scope preparing(x_.libraries.preparation);
    return x_.libraries.cublaslt.call("cublasLtCreate", &x_.state.cublaslt);
  }

  int find_and_multiply(const std::string& shape) {
    std::array<Heuristic, most_algorithms> results{};
    int found = 0;
    if (const int bad = search(results, found); bad != 0) return bad;
    int status = Descriptors::not_supported;
    for (int n = 0; n < std::min(found, most_algorithms); ++n) {
      const Heuristic& result = results[static_cast<std::size_t>(n)];
      if (result.status != 0) continue;
      status = multiply(result.algorithm);
      if (status == 0) keep(shape, result.algorithm);
      if (!is_refused(status)) break;
    }
    return status;
  }

  /// What a program multiplies has few shapes; of one that has ever new ones, not all are remembered.
  void keep(const std::string& shape, const Algorithm& algorithm) {
    constexpr std::size_t most_kept = 4096;
    if (x_.state.algorithms.size() >= most_kept) x_.state.algorithms.clear();
    x_.state.algorithms.insert_or_assign(shape, algorithm);
  }

  int search(std::array<Heuristic, most_algorithms>& results, int& found) {
    const Preparation::Scope preparing(x_.libraries.preparation);
    return x_.libraries.cublaslt.call("cublasLtMatmulAlgoGetHeuristic", x_.state.cublaslt,
                                      descriptors_.product, descriptors_.layouts[0], descriptors_.layouts[1],
                                      descriptors_.layouts[2], descriptors_.layouts[3],
                                      descriptors_.preference, most_algorithms, results.data(), &found);
  }

  int multiply(const Algorithm& algorithm) {
    const auto place = [](const Matrix& matrix) { return pointer<void>(matrix.address); };
    return x_.libraries.cublaslt.call(
        "cublasLtMatmul", x_.state.cublaslt, descriptors_.product,
        factor(of_.alpha, of_.scalars_on_device || of_.alpha_per_row), place(of_.a), descriptors_.layouts[0],
        place(of_.b), descriptors_.layouts[1], factor(of_.beta, of_.scalars_on_device), place(of_.c),
        descriptors_.layouts[2], place(of_.d), descriptors_.layouts[3], algorithm.data(),
        pointer<void>(of_.workspace), static_cast<std::size_t>(of_.workspace_bytes), x_.stream);
  }

  const Execution& x_;
  const Gemm& of_;
  Descriptors descriptors_;
};

/// Bytes of a bias, or of sums, that lie where kernels do not take them, as they take 16 bytes at once. 0:
/// they may stay where they are, or every batch has its own, so that the library has to find what takes them.
std::size_t misplaced_bias(const Gemm& of) {
  const bool several = of.batch != 1 && of.bias_stride != 0;
  if (!of.has_vector() || several || of.bias % 16 == 0) return 0;
  return static_cast<std::size_t>(of.bias_length()) * operations::bytes_of(of.bias_type);
}

CUresult by_cublaslt(const Execution& x, const Gemm& operation) {
  const std::size_t bias_bytes = misplaced_bias(operation);
  if (bias_bytes == 0) return LtProduct(x, operation).run();
  const Workspace bias(x, bias_bytes);
  if (!bias.there()) return CUDA_ERROR_OUT_OF_MEMORY;
  Gemm moved = operation;
  moved.bias = reinterpret_cast<std::uintptr_t>(bias.address());
  const auto copy = [&](CUdeviceptr into, CUdeviceptr from) {
    return x.libraries.api.cuMemcpyDtoDAsync_v2_(into, from, bias_bytes, x.stream);
  };
  if (operation.stores_sums()) {
    const CUresult result = LtProduct(x, moved).run();
    return result == CUDA_SUCCESS ? copy(operation.bias, moved.bias) : result;
  }
  const CUresult copied = copy(moved.bias, operation.bias);
  return copied == CUDA_SUCCESS ? LtProduct(x, moved).run() : copied;
}

/// Whether cuBLAS's functions can say all of it, and have a product of these types.
bool is_known_to_cublas(const Gemm& of) {
  const bool as_stored = of.epilogue == operations::epilogue_none && !of.alpha_per_row && of.scale_a == 0 &&
                         of.scale_b == 0 && of.scale_c == 0 && of.scale_d == 0 && of.largest_d == 0 &&
                         of.scaling_a == operations::Scaling::tensor &&
                         of.scaling_b == operations::Scaling::tensor;
  const bool in_place = of.c.address == of.d.address && of.c.leading == of.d.leading &&
                        of.c.stride == of.d.stride && of.c.type == of.d.type &&
                        of.c.pointers == of.d.pointers;
  const bool by_column = !of.a.by_row && !of.b.by_row && !of.c.by_row && !of.d.by_row;
  const bool types =
      !operations::is_f8(of.a.type) && !operations::is_f8(of.b.type) && of.d.type != operations::Element::i8;
  const bool reductions =
      of.reductions == operations::any_reduction || of.reductions == operations::whole_reductions;
  return as_stored && in_place && by_column && types && reductions;
}

}  // namespace

CUresult run(const Execution& x, const Gemm& operation) {
  return is_known_to_cublas(operation) ? by_cublas(x, operation) : by_cublaslt(x, operation);
}

}  // namespace gpupool::worker
