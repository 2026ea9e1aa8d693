// What NVIDIA's library refuses is refused here as well: else a mistake would be found on a GPU alone.
#include "libraries/cublaslt/narrow_types.h"

#include <cstdint>
#include <utility>

#include "libraries/cublas/status.h"
#include "libraries/shared/driver.h"

namespace gpupool::cublaslt {
namespace {

using cublas::invalid_value;
using cublas::not_supported;
using cublas::success;
using operations::Element;
using operations::Gemm;
using operations::Matrix;
using operations::Scaling;
using operations::Transpose;

// Compute capabilities, as major · 10 + minor.
constexpr int first_with_f8 = 89, hopper = 90, blackwell = 100;

/// Whether rows of op(matrix) are columns in memory.
bool is_turned(const Matrix& matrix, Transpose transpose) {
  return (transpose != Transpose::none) != (matrix.by_row != 0);
}

/// Sums go along what lies together: everywhere but on some devices that can turn a matrix of bytes.
bool fits_way(const Gemm& of, int capability) {
  const bool any_way = capability >= blackwell && capability / 10 != 12;
  return any_way || (is_turned(of.a, of.transpose_a) && !is_turned(of.b, of.transpose_b));
}

/// Bytes are read 16 at once.
bool is_aligned(const Matrix& matrix) {
  return !operations::is_f8(matrix.type) || (matrix.address % 16 == 0 && matrix.leading % 16 == 0);
}

bool is_by_128(Scaling how) {
  return how == Scaling::vec128 || how == Scaling::block128;
}

/// Whether a device multiplies operands with these kinds of factors.
bool has_scaling(int capability, Scaling a, Scaling b) {
  if (a == Scaling::tensor && b == Scaling::tensor) return true;
  if (a == Scaling::vec32 && b == Scaling::vec32) return capability >= blackwell;
  if (capability != hopper) return false;
  if (a == Scaling::outer && b == Scaling::outer) return true;
  return is_by_128(a) && is_by_128(b) && (a == Scaling::vec128 || b == Scaling::vec128);
}

/// Of a product whose operands have several factors.
int check_factors(const Gemm& of) {
  constexpr int sums_of_single = 68;
  const bool wide = of.d.type == Element::f32 || of.d.type == Element::f16 || of.d.type == Element::bf16;
  if (!wide || of.compute != sums_of_single || of.scalar != Element::f32 || of.batch != 1)
    return not_supported;
  if (is_by_128(of.scaling_a) && (of.m % 4 != 0 || of.n % 4 != 0)) return not_supported;
  for (const auto& [how, address] :
       {std::pair{of.scaling_a, of.scale_a}, std::pair{of.scaling_b, of.scale_b}}) {
    const std::uint64_t unit = how == Scaling::outer ? 4 : 16;
    if (address == 0 || address % unit != 0) return invalid_value;
  }
  return success;
}

}  // namespace

int check_narrow_types(const Gemm& of) {
  const bool several = of.scaling_a != Scaling::tensor || of.scaling_b != Scaling::tensor;
  if (!operations::is_f8(of.a.type) || !operations::is_f8(of.b.type))
    return several ? not_supported : success;
  int capability = 0;
  if (const CUresult bad = libraries::compute_capability(capability); bad != CUDA_SUCCESS)
    return cublas::status_of(bad);
  if (capability < first_with_f8 || !fits_way(of, capability)) return not_supported;
  for (const Matrix* const matrix : {&of.a, &of.b, &of.c, &of.d}) {
    if (!is_aligned(*matrix)) return not_supported;
  }
  if (!has_scaling(capability, of.scaling_a, of.scaling_b)) return not_supported;
  return several ? check_factors(of) : success;
}

}  // namespace gpupool::cublaslt
