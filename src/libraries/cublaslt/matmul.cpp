// cublasLtMatmul: one operation. Which products there are is known here.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "libraries/cublas/gemm_types.h"
#include "libraries/cublas/status.h"
#include "libraries/cublaslt/descriptors.h"
#include "libraries/cublaslt/epilogue.h"
#include "libraries/cublaslt/narrow_types.h"
#include "libraries/operations/gemm.h"
#include "libraries/shared/driver.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;
using namespace gpupool::cublaslt;

namespace {

using gpupool::operations::any_reduction;
using gpupool::operations::bytes_of;
using gpupool::operations::Gemm;
using gpupool::operations::is_complex;
using gpupool::operations::is_f8;
using gpupool::operations::Matrix;
using gpupool::operations::Scalar;
using gpupool::operations::Scaling;
using gpupool::operations::Transpose;

/// cublasLtPointerMode_t.
enum Scalars : int {
  on_host = 0,
  on_device = 1,
  alpha_per_row_beta_zero = 3,
  alpha_per_row_beta_on_host = 4
};

bool is_alpha_per_row(const MatmulDesc& product) {
  return product.pointer_mode == alpha_per_row_beta_zero ||
         product.pointer_mode == alpha_per_row_beta_on_host;
}

/// Whether there is a product with these types, as the tables of cublasLtMatmul list them.
bool fits(Element a, Element b, Element c, Element d, const Sums& sums) {
  if (is_complex(a) || is_complex(b))
    return a == b && b == c && c == d && bytes_of(d) == 2 * bytes_of(sums.sum);
  const bool sums_of_half = sums.compute == 64 || sums.compute == 65;
  if (sums_of_half) return sums.scalar == Element::f16 && a == sums.scalar && b == a && c == a && d == a;
  if (sums.sum == Element::f64) return a == Element::f64 && b == a && c == a && d == a;
  if (sums.sum == Element::i32)
    return a == Element::i8 && b == a && c == d && (d == Element::i32 || d == Element::i8);
  if (is_f8(a) || is_f8(b)) {
    const bool both_e5m2 = a == Element::f8_e5m2 && b == a;
    const bool wide = c == Element::f32 || c == Element::f16 || c == Element::bf16;
    return is_f8(a) && is_f8(b) && !both_e5m2 && wide && (d == c || is_f8(d));
  }
  if (a != b || c != d) return false;
  if (a == Element::f32) return d == a;
  if (a == Element::f16 || a == Element::bf16) return d == a || d == Element::f32;
  return a == Element::i8 && (d == Element::f32 || d == Element::i8);
}

/// Sums and factors by the descriptor's own types.
std::optional<Sums> sums_of(const MatmulDesc& product) {
  if (!known(product.scale)) return std::nullopt;
  const auto scalar = static_cast<Element>(product.scale);
  const auto sums = gpupool::cublas::sums_of(product.compute, scalar);
  return sums ? std::optional<Sums>({sums->sum, scalar, product.compute}) : std::nullopt;
}

std::uint64_t rows_of(const MatrixLayout& layout, int transposed) {
  return transposed != 0 ? layout.columns : layout.rows;
}
std::uint64_t columns_of(const MatrixLayout& layout, int transposed) {
  return transposed != 0 ? layout.rows : layout.columns;
}

Matrix matrix(const MatrixLayout& layout) {
  Matrix made;
  made.leading = layout.leading;
  made.stride = layout.stride;
  made.type = static_cast<Element>(layout.type);
  made.by_row = layout.order == 1;
  return made;
}

struct Layouts {
  const MatrixLayout &a, &b, &c, &d;
};

/// `may_repeat`: the distance of columns may be 0, so that all are one.
int check_layout(const MatrixLayout& layout, std::int32_t batch, bool may_repeat) {
  const bool planar = layout.plane_offset != 0;  // real and imaginary parts lie apart
  if (!known(layout.type) || layout.order < 0 || layout.order > 1 || layout.batch_mode != 0 || planar)
    return not_supported;
  const std::uint64_t least = layout.order == 1 ? layout.columns : layout.rows;
  const bool repeats = may_repeat && layout.leading == 0;
  if (layout.leading < 0 || (static_cast<std::uint64_t>(layout.leading) < least && !repeats))
    return invalid_value;
  return layout.batch == batch && layout.batch >= 1 ? success : invalid_value;
}

int check_layouts(const Layouts& of) {
  const std::pair<const MatrixLayout*, bool> all[] = {
      {&of.a, false}, {&of.b, false}, {&of.c, true}, {&of.d, false}};
  for (const auto& [layout, may_repeat] : all) {
    if (const int bad = check_layout(*layout, of.d.batch, may_repeat); bad != success) return bad;
  }
  return success;
}

int check_shapes(const MatmulDesc& product, const Layouts& of) {
  if (rows_of(of.a, product.transpose_a) != of.d.rows ||
      columns_of(of.b, product.transpose_b) != of.d.columns ||
      columns_of(of.a, product.transpose_a) != rows_of(of.b, product.transpose_b) || of.c.rows != of.d.rows ||
      of.c.columns != of.d.columns) {
    return invalid_value;
  }
  for (const int transposed : {product.transpose_a, product.transpose_b}) {
    if (transposed < 0 || transposed > 2) return invalid_value;
  }
  return success;
}

/// Refuses the settings that no operation carries.
int check_settings(const MatmulDesc& product, const Layouts& of) {
  if (product.transpose_c != 0 || product.fill_mode != 2) return not_supported;
  for (const int mode : {product.scale_mode_c, product.scale_mode_d, product.out_scale_mode_d}) {
    if (mode != 0) return not_supported;
  }
  for (const int mode : {product.scale_mode_a, product.scale_mode_b}) {
    if (mode < 0 || mode > static_cast<int>(Scaling::block128)) return not_supported;
  }
  // NVIDIA's library looks for the largest element of fp8 alone.
  if (product.largest_d != 0 && !is_f8(static_cast<Element>(of.d.type))) return not_supported;
  const bool scalars_known = product.pointer_mode == on_host || product.pointer_mode == on_device;
  if (!scalars_known && !is_alpha_per_row(product)) return not_supported;
  // The operation has one vector of factors for all batches.
  if (is_alpha_per_row(product) && of.d.batch > 1 && product.alpha_stride != 0) return not_supported;
  return success;
}

/// The operation without its addresses and factors. `success`, or why there is none.
int describe(const MatmulDesc& product, const Layouts& of, Gemm& operation) {
  if (const int bad = check_layouts(of); bad != success) return bad;
  const auto sums = sums_of(product);
  if (!sums) return not_supported;
  if (const int bad = check_shapes(product, of); bad != success) return bad;
  if (const int bad = check_settings(product, of); bad != success) return bad;
  operation.a = matrix(of.a);
  operation.b = matrix(of.b);
  operation.c = matrix(of.c);
  operation.d = matrix(of.d);
  if (!fits(operation.a.type, operation.b.type, operation.c.type, operation.d.type, *sums))
    return not_supported;
  operation.m = static_cast<std::int64_t>(of.d.rows);
  operation.n = static_cast<std::int64_t>(of.d.columns);
  operation.k = static_cast<std::int64_t>(columns_of(of.a, product.transpose_a));
  operation.batch = of.d.batch;
  operation.transpose_a = static_cast<Transpose>(product.transpose_a);
  operation.transpose_b = static_cast<Transpose>(product.transpose_b);
  operation.sum = sums->sum;
  operation.scalar = sums->scalar;
  operation.compute = sums->compute;
  operation.scalars_on_device = product.pointer_mode == on_device;
  operation.alpha_per_row = is_alpha_per_row(product);
  operation.multiprocessors = product.multiprocessors;
  operation.fast_sums = product.fast_sum != 0;
  operation.scaling_a = static_cast<Scaling>(product.scale_mode_a);
  operation.scaling_b = static_cast<Scaling>(product.scale_mode_b);
  operation.scale_a = product.scale_a;
  operation.scale_b = product.scale_b;
  operation.scale_c = product.scale_c;
  operation.scale_d = product.scale_d;
  operation.largest_d = product.largest_d;
  return describe_epilogue(product, operation);
}

int describe(const void* product, const void* a, const void* b, const void* c, const void* d,
             Gemm& operation) {
  for (const void* descriptor : {product, a, b, c, d}) {
    if (descriptor == nullptr) return invalid_value;
  }
  const auto layout = [](const void* p) -> const MatrixLayout& {
    return *static_cast<const MatrixLayout*>(p);
  };
  return describe(*static_cast<const MatmulDesc*>(product), {layout(a), layout(b), layout(c), layout(d)},
                  operation);
}

/// `success`, or why no way computes it, wherever its matrices lie.
int check(const void* product, const void* a, const void* b, const void* c, const void* d) {
  Gemm operation;
  if (const int bad = describe(product, a, b, c, d, operation); bad != success) return bad;
  return check_narrow_types(operation);
}

Scalar scalar(const void* value, bool is_address, Element type) {
  Scalar made;
  if (is_address) {
    made.words[0] = reinterpret_cast<std::uintptr_t>(value);
  } else {
    std::memcpy(made.words, value, bytes_of(type));
  }
  return made;
}

/// How the question that an algorithm answers lets sums be added up. Without one every way is right.
std::uint8_t reductions_of(const void* algorithm) {
  const auto* const found = static_cast<const Algorithm*>(algorithm);
  if (found == nullptr || found->mark != Algorithm::own_mark) return any_reduction;
  return static_cast<std::uint8_t>(found->reductions & any_reduction);
}

/// Before a product looks for its largest elements: parts of it only raise what is there.
CUresult clear_largest(const Gemm& operation, CUstream stream) {
  for (const std::uint64_t largest : {operation.largest_d, operation.largest_auxiliary}) {
    if (largest == 0) continue;
    const gpupool::libraries::Driver* driver = nullptr;
    if (const CUresult bad = gpupool::libraries::enter(driver); bad != CUDA_SUCCESS) return bad;
    if (const CUresult bad = driver->cuMemsetD32Async(largest, 0, 1, stream); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

/// cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  std::uint64_t algorithm[8];
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

/// What NVIDIA recommends for Hopper. The node's library chooses among the algorithms that do with as much;
/// we don't know which it will be.
constexpr std::uint64_t most_workspace = std::uint64_t{32} << 20;

HeuristicResult only_result(const Preference* asked) {
  HeuristicResult result{};
  auto* const algorithm = new (result.algorithm) Algorithm;
  algorithm->mark = Algorithm::own_mark;
  if (asked != nullptr) {
    algorithm->reductions = asked->reduction_schemes;
    // XLA gives as much as it is told here, and nothing where that is nothing.
    result.workspace_bytes = static_cast<std::size_t>(std::min(asked->workspace_bytes, most_workspace));
  }
  result.status = success;
  result.waves = 1;
  return result;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmul(void* handle, const void* product, const void* alpha, const void* a,
                                          const void* layout_a, const void* b, const void* layout_b,
                                          const void* beta, const void* c, const void* layout_c, void* d,
                                          const void* layout_d, const void* algorithm, void* workspace,
                                          std::size_t workspace_bytes, CUstream stream) {
  return guarded([&]() -> int {
    if (handle == nullptr) return not_initialized;
    if (alpha == nullptr || beta == nullptr) return invalid_value;
    Gemm operation;
    if (const int bad = describe(product, layout_a, layout_b, layout_c, layout_d, operation); bad != success)
      return bad;
    const auto mode = static_cast<const MatmulDesc*>(product)->pointer_mode;
    operation.alpha = scalar(alpha, operation.scalars_on_device || operation.alpha_per_row, operation.scalar);
    if (mode != alpha_per_row_beta_zero) {
      operation.beta = scalar(beta, operation.scalars_on_device, operation.scalar);
    }
    operation.a.address = reinterpret_cast<std::uintptr_t>(a);
    operation.b.address = reinterpret_cast<std::uintptr_t>(b);
    operation.c.address = reinterpret_cast<std::uintptr_t>(c);
    operation.d.address = reinterpret_cast<std::uintptr_t>(d);
    operation.workspace = reinterpret_cast<std::uintptr_t>(workspace);
    operation.workspace_bytes = workspace_bytes;
    operation.reductions = reductions_of(algorithm);
    if (const int bad = check_narrow_types(operation); bad != success) return bad;
    if (operation.m == 0 || operation.n == 0) return success;
    if (const int bad = check_epilogue_places(operation); bad != success) return bad;
    if (const Status bad = status_of(clear_largest(operation, stream)); bad != success) return bad;
    return status_of(gpupool::libraries::launch(operation, stream));
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, const void* product, const void* a,
                                                          const void* b, const void* c, const void* d,
                                                          const void* preference, int wanted,
                                                          HeuristicResult* results, int* found) {
  return guarded([&]() -> int {
    if (handle == nullptr) return not_initialized;
    if (wanted < 1 || results == nullptr || found == nullptr) return invalid_value;
    *found = 0;
    if (const int bad = check(product, a, b, c, d); bad != success) return bad;
    results[0] = only_result(static_cast<const Preference*>(preference));
    *found = 1;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoCheck(void* handle, const void* product, const void* a,
                                                   const void* b, const void* c, const void* d,
                                                   const void* algorithm, HeuristicResult* result) {
  return guarded([&]() -> int {
    if (handle == nullptr) return not_initialized;
    if (algorithm == nullptr || result == nullptr) return invalid_value;
    if (const int bad = check(product, a, b, c, d); bad != success) return bad;
    // As documented, the algorithm in the result stays what it is: it may be the one that is asked about.
    result->workspace_bytes = 0;
    result->status = success;
    result->waves = 1;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoInit(void* handle, int, int, int, int, int, int, int id,
                                                  Algorithm* algorithm) {
  if (handle == nullptr) return not_initialized;
  if (id != 0 || algorithm == nullptr) return invalid_value;
  std::memset(static_cast<void*>(algorithm), 0, 64);
  new (algorithm) Algorithm;
  algorithm->mark = Algorithm::own_mark;
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoGetIds(void* handle, int, int, int, int, int, int, int wanted,
                                                    int* ids, int* found) {
  if (handle == nullptr) return not_initialized;
  if (wanted < 1 || ids == nullptr || found == nullptr) return invalid_value;
  ids[0] = 0;
  *found = 1;
  return success;
}
