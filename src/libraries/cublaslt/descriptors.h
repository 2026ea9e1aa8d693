// What the descriptors of cuBLASLt are. They lie in memory of the program, which may have made them itself by
// the opaque structures of cublasLt.h, so none is larger than those, and their ends need no call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "libraries/operations/gemm.h"

namespace gpupool::cublaslt {

struct MatrixLayout {
  std::int32_t type = 0;
  std::int32_t order = 0;  // 0: by column, 1: by row
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch = 1, batch_mode = 0;  // 0: strided
  std::int64_t stride = 0, plane_offset = 0;
};
static_assert(sizeof(MatrixLayout) <= 64);

struct MatmulDesc {
  std::int32_t compute = 0, scale = 0, pointer_mode = 0;
  std::int32_t transpose_a = 0, transpose_b = 0, transpose_c = 0, fill_mode = 2;
  std::uint32_t epilogue = 1;
  std::uint64_t bias = 0;
  std::int64_t bias_stride = 0;
  std::uint64_t auxiliary = 0;
  std::int64_t auxiliary_leading = 0, auxiliary_stride = 0, alpha_stride = 0;
  std::int32_t multiprocessors = 0, bias_type = -1, auxiliary_type = -1;
  std::int8_t fast_sum = 0;
  std::uint64_t scale_a = 0, scale_b = 0, scale_c = 0, scale_d = 0, largest_d = 0;
  std::uint64_t auxiliary_scale = 0, auxiliary_largest = 0;
  std::int32_t scale_mode_a = 0, scale_mode_b = 0, scale_mode_c = 0, scale_mode_d = 0,
               auxiliary_scale_mode = 0, out_scale_mode_d = 0;
  std::uint64_t out_scale_d = 0;
};
static_assert(sizeof(MatmulDesc) <= 184);  // as the headers of CUDA 12.0 and 12.1 have it; later it is 256

struct Preference {
  std::uint32_t search_mode = 0, reduction_schemes = operations::any_reduction;
  std::uint64_t workspace_bytes = 0, implementations = ~std::uint64_t{0};
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
  float waves = 0;
};
static_assert(sizeof(Preference) <= 64);

/// How a product is computed. There is one way; what a program sets here is kept, so that it reads what it
/// has set. With it the answer to a question for a way brings along how that question let sums be added up.
struct Algorithm {
  static constexpr std::uint32_t own_mark = 0x67706c74;

  std::uint32_t mark = 0;
  std::uint32_t configuration[9] = {};
  std::uint32_t reductions = operations::any_reduction;
};
static_assert(sizeof(Algorithm) <= 64);

/// An attribute of a descriptor: where in it, and how many bytes.
struct Attribute {
  int id;
  std::size_t offset, bytes;
};

std::span<const Attribute> attributes_of(const MatrixLayout&);
std::span<const Attribute> attributes_of(const MatmulDesc&);
std::span<const Attribute> attributes_of(const Preference&);
std::span<const Attribute> attributes_of(const Algorithm&);

}  // namespace gpupool::cublaslt
