// Matrix products: every GEMM of cuBLAS and cublasLtMatmul.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libraries/operations/element.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/scalar.h"

namespace gpupool::operations {

/// The numbers of cublasOperation_t.
enum class Transpose : std::uint8_t { none = 0, transpose = 1, conjugate = 2 };

/// The bits of cublasLtEpilogue_t: what is done with a product before it is stored, and what else is stored.
enum Epilogue : std::uint32_t {
  epilogue_none = 1,
  epilogue_relu = 2,
  epilogue_bias = 4,
  epilogue_relu_gradient = 8,   // by the mask that ReLU has left
  epilogue_bias_gradient = 16,  // the sum of each row of D is stored where others have their bias
  epilogue_gelu = 32,
  epilogue_gelu_gradient = 64,  // by the arguments that GELU has left
  epilogue_auxiliary = 128,     // there is such a mask, or there are such arguments
  epilogue_sums_a = 256,        // like the gradient of the bias, of the rows of op(A)
  epilogue_sums_b = 512,        // of the columns of op(B)
};

/// Masks of cublasLtReductionScheme_t: how sums that were made in pieces may be added up. In any way, or not
/// in the type of the result, which may be narrower than that of the sums.
inline constexpr std::uint8_t any_reduction = 7, whole_reductions = 3;

/// A matrix in column order, or (`by_row`) in row order. Batches are `stride` elements apart, or (`pointers`)
/// `address` is that of an array of addresses in device memory.
struct Matrix {
  std::uint64_t address = 0;
  std::int64_t leading = 0, stride = 0;  // elements
  Element type = Element::f32;
  Flag by_row = false, pointers = false;
  std::uint8_t reserved[5] = {};
};

constexpr bool is_f8(Element type) {
  return type == Element::f8_e4m3 || type == Element::f8_e5m2;
}

/// What of op(A) or op(B) has one factor, by the numbers of cublasLtMatmulMatrixScale_t: all of it, 16 or 32
/// terms of a row of op(A) or column of op(B), a whole one (`outer`), 128 terms of one, or 128 terms of 128.
enum class Scaling : std::uint8_t { tensor = 0, vec16 = 1, vec32 = 2, outer = 3, vec128 = 4, block128 = 5 };

/// Where an operand's factors lie. `outers`: rows of op(A) or columns of op(B), of `terms` elements each.
struct ScaleLayout {
  Scaling how = Scaling::tensor;
  std::int64_t outers = 0, terms = 0;

  /// Whether factors have 8 bits and lie in tiles of 128 × 4, as tensor cores read them. Others are f32.
  [[nodiscard]] bool tiled() const { return how == Scaling::vec16 || how == Scaling::vec32; }
  [[nodiscard]] std::size_t bytes() const { return tiled() ? 1 : 4; }

  /// So many terms, from each multiple of it on, have the same factor.
  [[nodiscard]] std::int64_t width() const {
    return how == Scaling::vec16 ? 16 : how == Scaling::vec32 ? 32 : 128;
  }
  /// Factors along the sum, with those that only fill up.
  [[nodiscard]] std::int64_t in_sum() const {
    if (how == Scaling::tensor || how == Scaling::outer) return 1;
    const std::int64_t blocks = (terms + width() - 1) / width();
    return how == Scaling::vec128 ? blocks : (blocks + 3) / 4 * 4;
  }
  /// The number of the factor of an element.
  [[nodiscard]] std::int64_t at(std::int64_t outer, std::int64_t term) const {
    const std::int64_t block = term / width();
    switch (how) {
      case Scaling::tensor:
        return 0;
      case Scaling::outer:
        return outer;
      case Scaling::vec128:
        return outer + block * outers;
      case Scaling::block128:
        return block + outer / 128 * in_sum();
      case Scaling::vec16:
      case Scaling::vec32:
        return (outer / 128 * (in_sum() / 4) + block / 4) * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 +
               block % 4;
    }
    return 0;
  }
  /// How many there are in memory.
  [[nodiscard]] std::uint64_t count() const {
    const std::int64_t squares = (outers + 127) / 128;
    if (how == Scaling::tensor) return 1;
    if (how == Scaling::block128) return parts_of({squares, in_sum()});
    return parts_of({tiled() ? squares * 128 : outers, in_sum()});
  }
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
  Matrix a, b, c, d;  // of c, `leading` may be 0: then all columns are the same
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Transpose transpose_a = Transpose::none, transpose_b = Transpose::none;
  Element scalar = Element::f32;  // of alpha and beta
  Element sum = Element::f32;     // what products are added up in
  Flag scalars_on_device = false;
  Flag alpha_per_row = false;  // alpha is the address of m factors in device memory
  Scaling scaling_a = Scaling::tensor, scaling_b = Scaling::tensor;
  Scalar alpha, beta;
  std::uint32_t epilogue = epilogue_none;
  Element bias_type = Element::f32;
  /// What NVIDIA's library is told beside `sum` and `scalar`: whether sums of fp8 may be less precise, how
  /// they may be added up, cublasComputeType_t, how many multiprocessors to use (0: all), and the program's
  /// workspace.
  Flag fast_sums = false;
  std::uint8_t reductions = any_reduction;
  std::uint8_t reserved = 0;
  std::int32_t compute = 0;
  std::int32_t multiprocessors = 0;
  std::uint64_t workspace = 0, workspace_bytes = 0;
  std::uint64_t bias = 0;  // `bias_length` elements
  std::int64_t bias_stride = 0;
  /// Addresses of factors of narrow types in device memory, of A and B as `scaling_a` and `scaling_b` say,
  /// else one f32; 0: none.
  std::uint64_t scale_a = 0, scale_b = 0, scale_c = 0, scale_d = 0;
  /// Address of an f32 that becomes the largest size of an element of D before its factor, and is 0 before;
  /// 0: nobody asks.
  std::uint64_t largest_d = 0;
  /// The arguments of GELU, or the mask of ReLU: a bit for each element of D, 1 where the argument was not
  /// negative. A mask has no type, and its distances are in bits.
  Matrix auxiliary;
  /// Of arguments that are stored as fp8: addresses like `scale_d` and `largest_d`.
  std::uint64_t scale_auxiliary = 0, largest_auxiliary = 0;

  /// Whether the epilogue has any of these bits.
  [[nodiscard]] bool has(std::uint32_t bits) const { return (epilogue & bits) != 0; }
  [[nodiscard]] bool has_mask() const { return has(epilogue_relu | epilogue_relu_gradient); }
  /// Whether sums are stored where others have their bias.
  [[nodiscard]] bool stores_sums() const {
    return has(epilogue_bias_gradient | epilogue_sums_a | epilogue_sums_b);
  }
  /// Whether there is a bias, or such sums in its place.
  [[nodiscard]] bool has_vector() const { return has(epilogue_bias) || stores_sums(); }
  [[nodiscard]] std::int64_t bias_length() const { return has(epilogue_sums_b) ? n : m; }

  /// Whether a part has all columns of its rows, so that each row of D is added up in one order.
  [[nodiscard]] bool by_rows() const { return has(epilogue_bias_gradient); }
  [[nodiscard]] std::int64_t tile() const { return tile_of(m, n); }
  [[nodiscard]] std::int64_t tile_rows() const { return by_rows() ? 128 : tile(); }
  [[nodiscard]] std::int64_t tiles_m() const { return (m + tile_rows() - 1) / tile_rows(); }
  [[nodiscard]] std::int64_t tiles_n() const { return by_rows() ? 1 : (n + tile() - 1) / tile(); }
  /// With an alpha for each row beta lies in the host, so it can't lie on the device, too: the library would
  /// read whatever address of the host a client writes there.
  [[nodiscard]] bool sound() const {
    return are_sizes({m, n, k, batch}) && !(alpha_per_row && scalars_on_device);
  }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({tiles_m(), tiles_n(), batch}); }
};

}  // namespace gpupool::operations
