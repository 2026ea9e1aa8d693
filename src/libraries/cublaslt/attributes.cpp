// Attributes by their numbers in cublasLt.h.
#include "libraries/cublaslt/descriptors.h"

namespace gpupool::cublaslt {

#define GPUPOOL_ATTRIBUTE(id, type, field) {id, offsetof(type, field), sizeof(type::field)}

std::span<const Attribute> attributes_of(const MatrixLayout&) {
  static constexpr Attribute known[] = {
      GPUPOOL_ATTRIBUTE(0, MatrixLayout, type),       GPUPOOL_ATTRIBUTE(1, MatrixLayout, order),
      GPUPOOL_ATTRIBUTE(2, MatrixLayout, rows),       GPUPOOL_ATTRIBUTE(3, MatrixLayout, columns),
      GPUPOOL_ATTRIBUTE(4, MatrixLayout, leading),    GPUPOOL_ATTRIBUTE(5, MatrixLayout, batch),
      GPUPOOL_ATTRIBUTE(6, MatrixLayout, stride),     GPUPOOL_ATTRIBUTE(7, MatrixLayout, plane_offset),
      GPUPOOL_ATTRIBUTE(8, MatrixLayout, batch_mode),
  };
  return known;
}

std::span<const Attribute> attributes_of(const MatmulDesc&) {
  static constexpr Attribute known[] = {
      GPUPOOL_ATTRIBUTE(0, MatmulDesc, compute),
      GPUPOOL_ATTRIBUTE(1, MatmulDesc, scale),
      GPUPOOL_ATTRIBUTE(2, MatmulDesc, pointer_mode),
      GPUPOOL_ATTRIBUTE(3, MatmulDesc, transpose_a),
      GPUPOOL_ATTRIBUTE(4, MatmulDesc, transpose_b),
      GPUPOOL_ATTRIBUTE(5, MatmulDesc, transpose_c),
      GPUPOOL_ATTRIBUTE(6, MatmulDesc, fill_mode),
      GPUPOOL_ATTRIBUTE(7, MatmulDesc, epilogue),
      GPUPOOL_ATTRIBUTE(8, MatmulDesc, bias),
      GPUPOOL_ATTRIBUTE(10, MatmulDesc, bias_stride),
      GPUPOOL_ATTRIBUTE(11, MatmulDesc, auxiliary),
      GPUPOOL_ATTRIBUTE(12, MatmulDesc, auxiliary_leading),
      GPUPOOL_ATTRIBUTE(13, MatmulDesc, auxiliary_stride),
      GPUPOOL_ATTRIBUTE(14, MatmulDesc, alpha_stride),
      GPUPOOL_ATTRIBUTE(15, MatmulDesc, multiprocessors),
      GPUPOOL_ATTRIBUTE(17, MatmulDesc, scale_a),
      GPUPOOL_ATTRIBUTE(18, MatmulDesc, scale_b),
      GPUPOOL_ATTRIBUTE(19, MatmulDesc, scale_c),
      GPUPOOL_ATTRIBUTE(20, MatmulDesc, scale_d),
      GPUPOOL_ATTRIBUTE(21, MatmulDesc, largest_d),
      GPUPOOL_ATTRIBUTE(22, MatmulDesc, auxiliary_type),
      GPUPOOL_ATTRIBUTE(23, MatmulDesc, auxiliary_scale),
      GPUPOOL_ATTRIBUTE(24, MatmulDesc, auxiliary_largest),
      GPUPOOL_ATTRIBUTE(25, MatmulDesc, fast_sum),
      GPUPOOL_ATTRIBUTE(26, MatmulDesc, bias_type),
      GPUPOOL_ATTRIBUTE(31, MatmulDesc, scale_mode_a),
      GPUPOOL_ATTRIBUTE(32, MatmulDesc, scale_mode_b),
      GPUPOOL_ATTRIBUTE(33, MatmulDesc, scale_mode_c),
      GPUPOOL_ATTRIBUTE(34, MatmulDesc, scale_mode_d),
      GPUPOOL_ATTRIBUTE(35, MatmulDesc, auxiliary_scale_mode),
      GPUPOOL_ATTRIBUTE(36, MatmulDesc, out_scale_d),
      GPUPOOL_ATTRIBUTE(37, MatmulDesc, out_scale_mode_d),
  };
  return known;
}

std::span<const Attribute> attributes_of(const Preference&) {
  static constexpr Attribute known[] = {
      GPUPOOL_ATTRIBUTE(0, Preference, search_mode),       GPUPOOL_ATTRIBUTE(1, Preference, workspace_bytes),
      GPUPOOL_ATTRIBUTE(3, Preference, reduction_schemes), GPUPOOL_ATTRIBUTE(5, Preference, alignment_a),
      GPUPOOL_ATTRIBUTE(6, Preference, alignment_b),       GPUPOOL_ATTRIBUTE(7, Preference, alignment_c),
      GPUPOOL_ATTRIBUTE(8, Preference, alignment_d),       GPUPOOL_ATTRIBUTE(9, Preference, waves),
      GPUPOOL_ATTRIBUTE(12, Preference, implementations),
  };
  return known;
}

std::span<const Attribute> attributes_of(const Algorithm&) {
  constexpr std::size_t first = offsetof(Algorithm, configuration);
  static constexpr Attribute known[] = {
      {0, first, 4},      {1, first + 4, 4},  {2, first + 8, 4},  {3, first + 12, 4}, {4, first + 16, 4},
      {5, first + 20, 4}, {6, first + 24, 4}, {7, first + 28, 2}, {8, first + 32, 2},
  };
  return known;
}

#undef GPUPOOL_ATTRIBUTE

}  // namespace gpupool::cublaslt
