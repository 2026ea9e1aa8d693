// Matrix products: every GEMM of cuBLAS and cublasLtMatmul.
#pragma once

#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/scalar.h"

namespace gpupool::operations {

/// The numbers of cublasOperation_t.
enum class Transpose : std::uint8_t { none = 0, transpose = 1, conjugate = 2 };

/// The bits of cublasLtEpilogue_t that say what is done with a product before it is stored.
enum Epilogue : std::uint32_t { epilogue_none = 1, epilogue_relu = 2, epilogue_bias = 4, epilogue_gelu = 32 };

/// A matrix in column order, or (`by_row`) in row order. Batches are `stride` elements apart, or (`pointers`)
/// `address` is that of an array of addresses in device memory.
struct Matrix {
  std::uint64_t address = 0;
  std::int64_t leading = 0, stride = 0;  // elements
  Element type = Element::f32;
  Flag by_row = false, pointers = false;
  std::uint8_t reserved[5] = {};
};

/// Rows and columns of an m × n product that one part computes: by the shape alone, so that results are the
/// same everywhere.
constexpr std::int64_t tile_of(std::int64_t m, std::int64_t n) {
  const auto area = static_cast<double>(m) * static_cast<double>(n);
  return area >= 1 << 22 ? 512 : area >= 1 << 18 ? 256 : 128;
}

/// D = epilogue(alpha · op(A) · op(B) + beta · C), m × n, with k terms.
struct Gemm {
  static constexpr const char* name = "cublas_gemm";
  Matrix a, b, c, d;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Transpose transpose_a = Transpose::none, transpose_b = Transpose::none;
  Element scalar = Element::f32;  // of alpha and beta
  Element sum = Element::f32;     // what products are added up in
  Flag scalars_on_device = false;
  Flag alpha_per_row = false;  // alpha is the address of m factors in device memory
  std::uint8_t reserved[2] = {};
  Scalar alpha, beta;
  std::uint32_t epilogue = epilogue_none;
  Element bias_type = Element::f32;
  std::uint8_t reserved2[3] = {};
  /// What NVIDIA's library is told beside `sum` and `scalar`: cublasComputeType_t, and the program's
  /// workspace.
  std::int32_t compute = 0;
  std::int32_t reserved3 = 0;
  std::uint64_t workspace = 0, workspace_bytes = 0;
  std::uint64_t bias = 0;  // m elements
  std::int64_t bias_stride = 0;
  /// Addresses of f32 factors of narrow types in device memory; 0: none.
  std::uint64_t scale_a = 0, scale_b = 0, scale_c = 0, scale_d = 0;

  [[nodiscard]] std::int64_t tile() const { return tile_of(m, n); }
  [[nodiscard]] std::int64_t tiles_m() const { return (m + tile() - 1) / tile(); }
  [[nodiscard]] std::int64_t tiles_n() const { return (n + tile() - 1) / tile(); }
  [[nodiscard]] bool sound() const { return are_sizes({m, n, k, batch}); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({tiles_m(), tiles_n(), batch}); }
};

}  // namespace gpupool::operations
