// How the fragments of mma.sync lie in registers, for elements of any width. With group = lane / 4, pair =
// lane % 4 and n elements per register:
//   A (m x k): register r, element e: row = group + 8 * (r % (m / 8)), column = pair * n + e + 4 * n * (r /
//   (m / 8)) B (k x 8): row = pair * n + e + 4 * n * r, column = group C, D (m x 8): register r: row = group
//   + 8 * (r / 2), column = pair * 2 + r % 2
#pragma once

#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// Reads A and B of an m x 8 x k product, k up to 256, by `decode(bits)` into rows of A and columns of B.
template <class E>
struct Fragments {
  static constexpr uint32_t max_depth = 256;
  E a[16][max_depth], b[8][max_depth];
};

struct Shape3 {
  uint32_t rows, depth, element_bits;
  [[nodiscard]] uint32_t per_register() const { return 32 / element_bits; }
  [[nodiscard]] uint32_t a_registers() const { return rows * depth * element_bits / 1024; }
  [[nodiscard]] uint32_t b_registers() const { return 8 * depth * element_bits / 1024; }
};

template <class E, class DecodeA, class DecodeB>
SOFTGPU_INLINE void read_fragments(const Warp& warp, const Shape3& shape, const uint32_t* list_a,
                                   const uint32_t* list_b, Fragments<E>& into, DecodeA decode_a,
                                   DecodeB decode_b) {
  const uint32_t n = shape.per_register(), halves = shape.rows / 8;
  const uint32_t ones = shape.element_bits == 32 ? ~0u : (1u << shape.element_bits) - 1;
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < shape.a_registers(); ++r) {
      const uint32_t word = reg<uint32_t>(warp, list_a[r])[lane];
      E* const row = into.a[group + 8 * (r % halves)] + pair * n + 4 * n * (r / halves);
      for (uint32_t e = 0; e < n; ++e) row[e] = decode_a(word >> (e * shape.element_bits) & ones);
    }
    for (uint32_t r = 0; r < shape.b_registers(); ++r) {
      const uint32_t word = reg<uint32_t>(warp, list_b[r])[lane];
      E* const column = into.b[group] + pair * n + 4 * n * r;
      for (uint32_t e = 0; e < n; ++e) column[e] = decode_b(word >> (e * shape.element_bits) & ones);
    }
  }
}

SOFTGPU_INLINE uint32_t result_row(uint32_t lane, uint32_t r) {
  return lane / 4 + 8 * (r / 2);
}
SOFTGPU_INLINE uint32_t result_column(uint32_t lane, uint32_t r) {
  return lane % 4 * 2 + r % 2;
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA
