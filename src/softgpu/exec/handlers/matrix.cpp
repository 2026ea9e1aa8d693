// ldmatrix and mma.sync. Fragments are spread over the lanes as the PTX manual draws them: with
// group = lane / 4 and pair = lane % 4,
//   A (16 x k, row):  row = group + 8 * (register's second half), column = pair * 2 + element, then + 8
//   B (k x 8, col):   row = pair * 2 + element (+ 8), column = group
//   C, D (16 x 8):    row = group (+ 8), column = pair * 2 + element
#include <cmath>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "softgpu/exec/handlers/address.h"
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

using Halves = uint16_t __attribute__((vector_size(16)));

// Three times the two halves of the rows are interleaved, which moves each element to its mirror place.
SOFTGPU_INLINE void transpose(uint16_t (&matrix)[8][8]) {
  Halves row[8], next[8];
  std::memcpy(row, matrix, sizeof(row));
  for (int step = 0; step < 3; ++step) {
    for (uint32_t i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shufflevector(row[i], row[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(row, next, sizeof(row));
  }
  std::memcpy(matrix, row, sizeof(row));
}

// Four matrices at most of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.
template <bool transposed>
void load_matrices(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  Addresses a;
  const uint32_t all = warp.mask;
  // Only the lanes whose addresses count are checked.
  const uint32_t used = in.list_size == 4 ? full_mask : (uint32_t{1} << (8 * in.list_size)) - 1;
  set_mask(warp, used & all);
  if (warp.mask == 0) raise_fault(warp, in, Fault::illegal_instruction, "ldmatrix without its address lanes");
  resolve(warp, in, in.op[0], in.aux, 0, 16, a);
  set_mask(warp, all);
  // Seen as 64 halves, a destination register is the matrix, row by row.
  for (uint32_t m = 0; m < in.list_size; ++m) {
    uint32_t* const d = reg<uint32_t>(warp, in.list[m]);
    alignas(64) uint16_t rows[8][8];
    for (uint32_t row = 0; row < 8; ++row) {
      std::memcpy(rows[row], reinterpret_cast<const void*>(a.at[8 * m + row]), sizeof(rows[row]));
    }
    if constexpr (transposed) transpose(rows);
    if (warp.mask == full_mask) {
      std::memcpy(d, rows, sizeof(rows));
    } else {
      alignas(64) uint32_t values[warp_lanes];
      std::memcpy(values, rows, sizeof(rows));
      each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
    }
  }
}

template <class F>
SOFTGPU_INLINE float half_of(uint32_t word, uint32_t which) {
  return F::load(static_cast<uint16_t>(word >> (16 * which)));
}

// C and D as f32 (four registers) or f16 (two).
SOFTGPU_INLINE void store_result(Warp& warp, const Instruction& in, const float (&d)[16][8], bool half) {
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    if (!(warp.mask >> lane & 1)) continue;
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < 2; ++r) {
      const float x = d[group + 8 * r][2 * pair], y = d[group + 8 * r][2 * pair + 1];
      if (half) {
        reg<uint32_t>(warp, in.list[r])[lane] = float_to_half(x) | uint32_t{float_to_half(y)} << 16;
      } else {
        reg<float>(warp, in.list[2 * r])[lane] = x;
        reg<float>(warp, in.list[2 * r + 1])[lane] = y;
      }
    }
  }
}
SOFTGPU_INLINE void load_accumulator(const Warp& warp, const uint32_t* list, float (&c)[16][8], bool half) {
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < 2; ++r) {
      for (uint32_t e = 0; e < 2; ++e) {
        c[group + 8 * r][2 * pair + e] = half ? half_of<HalfFormat>(reg<uint32_t>(warp, list[r])[lane], e)
                                              : reg<float>(warp, list[2 * r + e])[lane];
      }
    }
  }
}
template <uint32_t depth>
SOFTGPU_INLINE void multiply(const float (&a)[16][depth], const float (&b)[depth][8], float (&c)[16][8]) {
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t k = 0; k < depth; ++k) {
      for (uint32_t column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
}

// list: d, a, b, c. depth is k; 16-bit elements, two per register.
template <uint32_t depth>
void multiply_16bit_to_f16(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  using F = HalfFormat;
  constexpr uint32_t result_registers = 2, a_registers = depth / 4, b_registers = depth / 8;
  const uint32_t* const list_a = in.list + result_registers;
  const uint32_t* const list_b = list_a + a_registers;
  const uint32_t* const list_c = list_b + b_registers;
  float a[16][depth], b[depth][8], c[16][8];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t e = 0; e < 2; ++e) {
      for (uint32_t r = 0; r < a_registers; ++r) {
        a[group + 8 * (r % 2)][2 * pair + e + 8 * (r / 2)] =
            half_of<F>(reg<uint32_t>(warp, list_a[r])[lane], e);
      }
      for (uint32_t r = 0; r < b_registers; ++r) {
        b[2 * pair + e + 8 * r][group] = half_of<F>(reg<uint32_t>(warp, list_b[r])[lane], e);
      }
    }
  }
  load_accumulator(warp, list_c, c, true);
  multiply<depth>(a, b, c);
  store_result(warp, in, c, true);
}

using Eight = float __attribute__((vector_size(32)));

// One register of 16-bit elements, 8 rows of 8, as floats.
template <class F>
SOFTGPU_INLINE void widen(const uint16_t* from, float* to) {
#if defined(__F16C__)
  if constexpr (std::is_same_v<F, HalfFormat>) {
    for (uint32_t i = 0; i < 64; i += 8) {
      _mm256_store_ps(to + i, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
    return;
  }
#endif
  for (uint32_t i = 0; i < 64; ++i) to[i] = F::load(from[i]);
}

// sum += a * b, with one rounding or two. Both are the same where the product is exact: that of two halves
// is.
template <class F>
SOFTGPU_INLINE void multiply_add(Eight& sum, float a, const Eight& b) {
#if defined(__FMA__)
  if constexpr (std::is_same_v<F, HalfFormat>) {
    sum = _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
    return;
  }
#endif
  sum = sum + a * b;
}

// The most frequent form, with sums in f32. A register of A is 8 rows of 8, row by row, one of B 8 columns of
// 8; of C the registers hold even and odd columns, 4 of each row, and that order of columns (0 2 4 6 1 3 5 7)
// is kept throughout, so that a row of sums is two halves of registers.
template <class F, uint32_t depth>
void multiply_16bit_to_f32(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  constexpr uint32_t tiles = depth / 8, a_registers = 2 * tiles;
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + a_registers;
  const uint32_t* const list_c = list_b + tiles;
  alignas(64) float a[a_registers][64], columns[64];
  Eight b[depth];
  for (uint32_t r = 0; r < a_registers; ++r) widen<F>(reg<uint16_t>(warp, list_a[r]), a[r]);
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    widen<F>(reg<uint16_t>(warp, list_b[tile]), columns);
    for (uint32_t k = 0; k < 8; ++k) {
      const float* const c = columns + k;
      b[8 * tile + k] = Eight{c[0], c[16], c[32], c[48], c[8], c[24], c[40], c[56]};
    }
  }
  alignas(64) float results[4][warp_lanes];
  for (uint32_t half = 0; half < 2; ++half) {  // rows 0 to 7, then 8 to 15
    const float* const even = reg<float>(warp, list_c[2 * half]);
    const float* const odd = reg<float>(warp, list_c[2 * half + 1]);
    Eight sums[8];
    for (uint32_t row = 0; row < 8; ++row) {
      std::memcpy(&sums[row], even + 4 * row, 16);
      std::memcpy(reinterpret_cast<float*>(&sums[row]) + 4, odd + 4 * row, 16);
    }
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      const float* const from = a[2 * tile + half];
#pragma GCC unroll 8
      for (uint32_t k = 0; k < 8; ++k) {
#pragma GCC unroll 8
        for (uint32_t row = 0; row < 8; ++row) {
          multiply_add<F>(sums[row], from[8 * row + k], b[8 * tile + k]);
        }
      }
    }
    for (uint32_t row = 0; row < 8; ++row) {
      std::memcpy(results[2 * half] + 4 * row, &sums[row], 16);
      std::memcpy(results[2 * half + 1] + 4 * row, reinterpret_cast<const float*>(&sums[row]) + 4, 16);
    }
  }
  for (uint32_t r = 0; r < 4; ++r) {
    float* const d = reg<float>(warp, in.list[r]);
    if (warp.mask == full_mask) {
      std::memcpy(d, results[r], sizeof(results[r]));
    } else {
      each_active(warp, [&](uint32_t i) { d[i] = results[r][i]; });
    }
  }
}

// tf32: one element per register; columns of A by pair, + 4.
template <uint32_t depth>
void multiply_tf32(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  constexpr uint32_t a_registers = depth / 2, b_registers = depth / 4;
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + a_registers;
  const uint32_t* const list_c = list_b + b_registers;
  float a[16][depth], b[depth][8], c[16][8];
  auto element = [](uint32_t bits) { return std::bit_cast<float>(bits & ~0x1fffu); };
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < a_registers; ++r) {
      a[group + 8 * (r % 2)][pair + 4 * (r / 2)] = element(reg<uint32_t>(warp, list_a[r])[lane]);
    }
    for (uint32_t r = 0; r < b_registers; ++r)
      b[pair + 4 * r][group] = element(reg<uint32_t>(warp, list_b[r])[lane]);
  }
  load_accumulator(warp, list_c, c, false);
  multiply<depth>(a, b, c);
  store_result(warp, in, c, false);
}

// 8-bit integers, four per register, with 32-bit sums.
template <class A, class B, uint32_t depth>
void multiply_8bit(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  constexpr uint32_t a_registers = depth / 8, b_registers = depth / 16;
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + a_registers;
  const uint32_t* const list_c = list_b + b_registers;
  int32_t a[16][depth], b[depth][8];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t e = 0; e < 4; ++e) {
      for (uint32_t r = 0; r < a_registers; ++r) {
        a[group + 8 * (r % 2)][4 * pair + e + 16 * (r / 2)] =
            static_cast<A>(reg<uint32_t>(warp, list_a[r])[lane] >> (8 * e));
      }
      for (uint32_t r = 0; r < b_registers; ++r) {
        b[4 * pair + e + 16 * r][group] = static_cast<B>(reg<uint32_t>(warp, list_b[r])[lane] >> (8 * e));
      }
    }
  }
  uint32_t results[4][warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < 4; ++r) {
      uint32_t sum = reg<uint32_t>(warp, list_c[r])[lane];
      for (uint32_t k = 0; k < depth; ++k) {
        sum += static_cast<uint32_t>(a[group + 8 * (r / 2)][k] * b[k][2 * pair + r % 2]);
      }
      results[r][lane] = sum;
    }
  }
  for (uint32_t r = 0; r < 4; ++r) {
    uint32_t* const d = reg<uint32_t>(warp, in.list[r]);
    each_active(warp, [&](uint32_t i) { d[i] = results[r][i]; });
  }
}

}  // namespace

void register_matrix(OpcodeTable& table) {
  table.add("@ldmatrix", "", load_matrices<false>);
  table.add("@ldmatrix.trans", "", load_matrices<true>);
  const std::string mma = "mma.sync.aligned.";
  table.add(mma + "m16n8k16.row.col.f32.f16.f16.f32", "{w4}={w4}{w2}{w4}",
            multiply_16bit_to_f32<HalfFormat, 16>);
  table.add(mma + "m16n8k16.row.col.f32.bf16.bf16.f32", "{w4}={w4}{w2}{w4}",
            multiply_16bit_to_f32<BfloatFormat, 16>);
  table.add(mma + "m16n8k16.row.col.f16.f16.f16.f16", "{w2}={w4}{w2}{w2}", multiply_16bit_to_f16<16>);
  table.add(mma + "m16n8k8.row.col.f32.f16.f16.f32", "{w4}={w2}{w1}{w4}",
            multiply_16bit_to_f32<HalfFormat, 8>);
  table.add(mma + "m16n8k8.row.col.f32.bf16.bf16.f32", "{w4}={w2}{w1}{w4}",
            multiply_16bit_to_f32<BfloatFormat, 8>);
  table.add(mma + "m16n8k8.row.col.f16.f16.f16.f16", "{w2}={w2}{w1}{w2}", multiply_16bit_to_f16<8>);
  table.add(mma + "m16n8k8.row.col.f32.tf32.tf32.f32", "{w4}={w4}{w2}{w4}", multiply_tf32<8>);
  table.add(mma + "m16n8k4.row.col.f32.tf32.tf32.f32", "{w4}={w2}{w1}{w4}", multiply_tf32<4>);
  table.add(mma + "m16n8k32.row.col.s32.s8.s8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<int8_t, int8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.u8.u8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<uint8_t, uint8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.s8.u8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<int8_t, uint8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.u8.s8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<uint8_t, int8_t, 32>);
  table.add(mma + "m16n8k16.row.col.s32.s8.s8.s32", "{w4}={w2}{w1}{w4}", multiply_8bit<int8_t, int8_t, 16>);
}

}  // namespace softgpu::SOFTGPU_ISA
