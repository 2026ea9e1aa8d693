// cublasLtMatmul: one operation. Which products there are, and that they need no workspace, is known here.
#include <cstring>
#include <new>

#include "libraries/cublas/gemm_types.h"
#include "libraries/cublas/status.h"
#include "libraries/cublaslt/descriptors.h"
#include "libraries/operations/gemm.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cublas;
using namespace gpupool::cublaslt;

namespace {

using gpupool::operations::bytes_of;
using gpupool::operations::Gemm;
using gpupool::operations::is_complex;
using gpupool::operations::Matrix;
using gpupool::operations::Scalar;
using gpupool::operations::Transpose;

constexpr std::uint32_t algorithm_mark = 0x67706c74;

/// cublasLtPointerMode_t.
enum Scalars : int {
  on_host = 0,
  on_device = 1,
  alpha_per_row_beta_zero = 3,
  alpha_per_row_beta_on_host = 4
};

bool is_f8(Element type) {
  return type == Element::f8_e4m3 || type == Element::f8_e5m2;
}

/// Whether there is a product with these types, as the tables of cublasLtMatmul list them.
bool fits(Element a, Element b, Element c, Element d, const Sums& sums) {
  if (is_complex(a) || is_complex(b))
    return a == b && b == c && c == d && bytes_of(d) == 2 * bytes_of(sums.sum);
  if (sums.sum == Element::f64) return a == Element::f64 && b == a && c == a && d == a;
  if (sums.sum == Element::i32)
    return a == Element::i8 && b == a && c == d && (d == Element::i32 || d == Element::i8);
  if (is_f8(a) || is_f8(b)) {
    const bool wide = c == Element::f32 || c == Element::f16 || c == Element::bf16;
    return is_f8(a) && is_f8(b) && wide && (d == c || is_f8(d));
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

bool is_batch(const MatrixLayout& layout, std::int32_t batch) {
  return layout.batch == batch;
}

Matrix matrix(const MatrixLayout& layout, const void* address) {
  Matrix made;
  made.address = reinterpret_cast<std::uintptr_t>(address);
  made.leading = layout.leading;
  made.stride = layout.stride;
  made.type = static_cast<Element>(layout.type);
  made.by_row = layout.order == 1;
  return made;
}

struct Layouts {
  const MatrixLayout &a, &b, &c, &d;
};

/// The operation without its addresses and factors. `success`, or why there is none.
int describe(const MatmulDesc& product, const Layouts& of, Gemm& operation) {
  for (const MatrixLayout* layout : {&of.a, &of.b, &of.c, &of.d}) {
    const bool planar = layout->plane_offset != 0;  // real and imaginary parts lie apart
    if (!known(layout->type) || layout->order < 0 || layout->order > 1 || layout->batch_mode != 0 || planar)
      return not_supported;
    const std::uint64_t least = layout->order == 1 ? layout->columns : layout->rows;
    if (layout->leading < 0 || static_cast<std::uint64_t>(layout->leading) < least) return invalid_value;
    if (!is_batch(*layout, of.d.batch) || layout->batch < 1) return invalid_value;
  }
  const auto sums = sums_of(product);
  if (!sums) return not_supported;
  const auto rows = [](const MatrixLayout& layout, int turned) {
    return turned ? layout.columns : layout.rows;
  };
  const auto columns = [](const MatrixLayout& layout, int turned) {
    return turned ? layout.rows : layout.columns;
  };
  if (rows(of.a, product.transpose_a) != of.d.rows || columns(of.b, product.transpose_b) != of.d.columns ||
      columns(of.a, product.transpose_a) != rows(of.b, product.transpose_b) || of.c.rows != of.d.rows ||
      of.c.columns != of.d.columns) {
    return invalid_value;
  }
  if (product.transpose_a < 0 || product.transpose_a > 2 || product.transpose_b < 0 ||
      product.transpose_b > 2) {
    return invalid_value;
  }
  constexpr std::uint32_t known_epilogues =
      gpupool::operations::epilogue_none | gpupool::operations::epilogue_relu |
      gpupool::operations::epilogue_bias | gpupool::operations::epilogue_gelu;
  if ((product.epilogue & ~known_epilogues) != 0 || product.epilogue == 0) return not_supported;
  if (product.transpose_c != 0 || product.fill_mode != 2 || product.largest_d != 0) return not_supported;
  for (const int mode : {product.scale_mode_a, product.scale_mode_b, product.scale_mode_c,
                         product.scale_mode_d, product.out_scale_mode_d}) {
    if (mode != 0) return not_supported;
  }
  const bool scalars_known = product.pointer_mode == on_host || product.pointer_mode == on_device ||
                             product.pointer_mode == alpha_per_row_beta_zero ||
                             product.pointer_mode == alpha_per_row_beta_on_host;
  if (!scalars_known) return not_supported;
  const bool alpha_per_row =
      product.pointer_mode == alpha_per_row_beta_zero || product.pointer_mode == alpha_per_row_beta_on_host;
  // The operation has one vector of factors for all batches.
  if (alpha_per_row && of.d.batch > 1 && product.alpha_stride != 0) return not_supported;
  operation.a = matrix(of.a, nullptr);
  operation.b = matrix(of.b, nullptr);
  operation.c = matrix(of.c, nullptr);
  operation.d = matrix(of.d, nullptr);
  if (!fits(operation.a.type, operation.b.type, operation.c.type, operation.d.type, *sums))
    return not_supported;
  operation.m = static_cast<std::int64_t>(of.d.rows);
  operation.n = static_cast<std::int64_t>(of.d.columns);
  operation.k = static_cast<std::int64_t>(columns(of.a, product.transpose_a));
  operation.batch = of.d.batch;
  operation.transpose_a = static_cast<Transpose>(product.transpose_a);
  operation.transpose_b = static_cast<Transpose>(product.transpose_b);
  operation.sum = sums->sum;
  operation.scalar = sums->scalar;
  operation.compute = sums->compute;
  operation.scalars_on_device = product.pointer_mode == on_device;
  operation.alpha_per_row = alpha_per_row;
  operation.epilogue = product.epilogue;
  operation.bias = product.bias;
  operation.bias_stride = product.bias_stride;
  operation.bias_type = operation.d.type;
  if (is_f8(operation.d.type)) operation.bias_type = Element::bf16;
  if (operation.d.type == Element::i8) operation.bias_type = Element::f32;
  if (product.bias_type >= 0) {
    if (!known(product.bias_type)) return not_supported;
    operation.bias_type = static_cast<Element>(product.bias_type);
  }
  operation.scale_a = product.scale_a;
  operation.scale_b = product.scale_b;
  operation.scale_c = product.scale_c;
  operation.scale_d = product.scale_d;
  return success;
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

Scalar scalar(const void* value, bool is_address, Element type) {
  Scalar made;
  if (is_address) {
    made.words[0] = reinterpret_cast<std::uintptr_t>(value);
  } else {
    std::memcpy(made.words, value, bytes_of(type));
  }
  return made;
}

/// cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  std::uint64_t algorithm[8];
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

HeuristicResult only_result(int status) {
  HeuristicResult result{};
  new (result.algorithm) Algorithm{algorithm_mark, {}};
  result.status = status;
  result.waves = 1;
  return result;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmul(void* handle, const void* product, const void* alpha, const void* a,
                                          const void* layout_a, const void* b, const void* layout_b,
                                          const void* beta, const void* c, const void* layout_c, void* d,
                                          const void* layout_d, const void*, void* workspace,
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
    if (operation.m == 0 || operation.n == 0) return success;
    return status_of(gpupool::libraries::launch(operation, stream));
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, const void* product, const void* a,
                                                          const void* b, const void* c, const void* d,
                                                          const void*, int wanted, HeuristicResult* results,
                                                          int* found) {
  return guarded([&]() -> int {
    if (handle == nullptr) return not_initialized;
    if (wanted < 1 || results == nullptr || found == nullptr) return invalid_value;
    *found = 0;
    Gemm operation;
    if (const int bad = describe(product, a, b, c, d, operation); bad != success) return bad;
    results[0] = only_result(success);
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
    Gemm operation;
    if (const int bad = describe(product, a, b, c, d, operation); bad != success) return bad;
    *result = only_result(success);
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoInit(void* handle, int, int, int, int, int, int, int id,
                                                  Algorithm* algorithm) {
  if (handle == nullptr) return not_initialized;
  if (id != 0 || algorithm == nullptr) return invalid_value;
  std::memset(static_cast<void*>(algorithm), 0, 64);
  algorithm->mark = algorithm_mark;
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
