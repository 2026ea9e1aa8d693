// ldmatrix and mma.sync. Fragments are spread over the lanes as the PTX manual draws them: with
// group = lane / 4 and pair = lane % 4,
//   A (16 x k, row):  row = group + 8 * (register's second half), column = pair * 2 + element, then + 8
//   B (k x 8, col):   row = pair * 2 + element (+ 8), column = group
//   C, D (16 x 8):    row = group (+ 8), column = pair * 2 + element
#include <cmath>

#include "softgpu/exec/handlers/address.h"
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// Four matrices at most of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.
template <bool kTransposed>
void load_matrices(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, kFullMask)) return;
  Addresses a;
  const uint32_t all = warp.mask;
  // Only the lanes whose addresses count are checked.
  const uint32_t used = in.list_size == 4 ? kFullMask : (uint32_t{1} << (8 * in.list_size)) - 1;
  set_mask(warp, used & all);
  if (warp.mask == 0) raise_fault(warp, in, Fault::illegal_instruction, "ldmatrix without its address lanes");
  resolve(warp, in, in.op[0], in.aux, 0, 16, a);
  set_mask(warp, all);
  for (uint32_t m = 0; m < in.list_size; ++m) {
    uint32_t* const d = reg<uint32_t>(warp, in.list[m]);
    uint32_t values[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t group = lane / 4, pair = lane % 4;
      if constexpr (kTransposed) {
        const auto low = read_from<uint16_t>(a.at[8 * m + 2 * pair] + 2 * group);
        const auto high = read_from<uint16_t>(a.at[8 * m + 2 * pair + 1] + 2 * group);
        values[lane] = low | uint32_t{high} << 16;
      } else {
        values[lane] = read_from<uint32_t>(a.at[8 * m + group] + 4 * pair);
      }
    }
    each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
  }
}

template <class F>
SOFTGPU_INLINE float half_of(uint32_t word, uint32_t which) {
  return F::load(static_cast<uint16_t>(word >> (16 * which)));
}

// C and D as f32 (four registers) or f16 (two).
SOFTGPU_INLINE void store_result(Warp& warp, const Instruction& in, const float (&d)[16][8], bool half) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
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
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < 2; ++r) {
      for (uint32_t e = 0; e < 2; ++e) {
        c[group + 8 * r][2 * pair + e] = half ? half_of<HalfFormat>(reg<uint32_t>(warp, list[r])[lane], e)
                                              : reg<float>(warp, list[2 * r + e])[lane];
      }
    }
  }
}
template <uint32_t kDepth>
SOFTGPU_INLINE void multiply(const float (&a)[16][kDepth], const float (&b)[kDepth][8], float (&c)[16][8]) {
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t k = 0; k < kDepth; ++k) {
      for (uint32_t column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
}

// list: d, a, b, c. kDepth is k; 16-bit elements, two per register.
template <class F, uint32_t kDepth, bool kHalfResult>
void multiply_16bit(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, kFullMask)) return;
  constexpr uint32_t kResult = kHalfResult ? 2 : 4, kA = kDepth / 4, kB = kDepth / 8;
  const uint32_t* const list_a = in.list + kResult;
  const uint32_t* const list_b = list_a + kA;
  const uint32_t* const list_c = list_b + kB;
  float a[16][kDepth], b[kDepth][8], c[16][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t e = 0; e < 2; ++e) {
      for (uint32_t r = 0; r < kA; ++r) {
        a[group + 8 * (r % 2)][2 * pair + e + 8 * (r / 2)] =
            half_of<F>(reg<uint32_t>(warp, list_a[r])[lane], e);
      }
      for (uint32_t r = 0; r < kB; ++r) {
        b[2 * pair + e + 8 * r][group] = half_of<F>(reg<uint32_t>(warp, list_b[r])[lane], e);
      }
    }
  }
  load_accumulator(warp, list_c, c, kHalfResult);
  multiply<kDepth>(a, b, c);
  store_result(warp, in, c, kHalfResult);
}

// tf32: one element per register; columns of A by pair, + 4.
template <uint32_t kDepth>
void multiply_tf32(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, kFullMask)) return;
  constexpr uint32_t kA = kDepth / 2, kB = kDepth / 4;
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + kA;
  const uint32_t* const list_c = list_b + kB;
  float a[16][kDepth], b[kDepth][8], c[16][8];
  auto element = [](uint32_t bits) { return std::bit_cast<float>(bits & ~0x1fffu); };
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < kA; ++r) {
      a[group + 8 * (r % 2)][pair + 4 * (r / 2)] = element(reg<uint32_t>(warp, list_a[r])[lane]);
    }
    for (uint32_t r = 0; r < kB; ++r) b[pair + 4 * r][group] = element(reg<uint32_t>(warp, list_b[r])[lane]);
  }
  load_accumulator(warp, list_c, c, false);
  multiply<kDepth>(a, b, c);
  store_result(warp, in, c, false);
}

// 8-bit integers, four per register, with 32-bit sums.
template <class A, class B, uint32_t kDepth>
void multiply_8bit(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, kFullMask)) return;
  constexpr uint32_t kA = kDepth / 8, kB = kDepth / 16;
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + kA;
  const uint32_t* const list_c = list_b + kB;
  int32_t a[16][kDepth], b[kDepth][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t e = 0; e < 4; ++e) {
      for (uint32_t r = 0; r < kA; ++r) {
        a[group + 8 * (r % 2)][4 * pair + e + 16 * (r / 2)] =
            static_cast<A>(reg<uint32_t>(warp, list_a[r])[lane] >> (8 * e));
      }
      for (uint32_t r = 0; r < kB; ++r) {
        b[4 * pair + e + 16 * r][group] = static_cast<B>(reg<uint32_t>(warp, list_b[r])[lane] >> (8 * e));
      }
    }
  }
  uint32_t results[4][kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < 4; ++r) {
      uint32_t sum = reg<uint32_t>(warp, list_c[r])[lane];
      for (uint32_t k = 0; k < kDepth; ++k) {
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
            multiply_16bit<HalfFormat, 16, false>);
  table.add(mma + "m16n8k16.row.col.f32.bf16.bf16.f32", "{w4}={w4}{w2}{w4}",
            multiply_16bit<BfloatFormat, 16, false>);
  table.add(mma + "m16n8k16.row.col.f16.f16.f16.f16", "{w2}={w4}{w2}{w2}",
            multiply_16bit<HalfFormat, 16, true>);
  table.add(mma + "m16n8k8.row.col.f32.f16.f16.f32", "{w4}={w2}{w1}{w4}",
            multiply_16bit<HalfFormat, 8, false>);
  table.add(mma + "m16n8k8.row.col.f32.bf16.bf16.f32", "{w4}={w2}{w1}{w4}",
            multiply_16bit<BfloatFormat, 8, false>);
  table.add(mma + "m16n8k8.row.col.f16.f16.f16.f16", "{w2}={w2}{w1}{w2}",
            multiply_16bit<HalfFormat, 8, true>);
  table.add(mma + "m16n8k8.row.col.f32.tf32.tf32.f32", "{w4}={w4}{w2}{w4}", multiply_tf32<8>);
  table.add(mma + "m16n8k4.row.col.f32.tf32.tf32.f32", "{w4}={w2}{w1}{w4}", multiply_tf32<4>);
  table.add(mma + "m16n8k32.row.col.s32.s8.s8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<int8_t, int8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.u8.u8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<uint8_t, uint8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.s8.u8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<int8_t, uint8_t, 32>);
  table.add(mma + "m16n8k32.row.col.s32.u8.s8.s32", "{w4}={w4}{w2}{w4}", multiply_8bit<uint8_t, int8_t, 32>);
  table.add(mma + "m16n8k16.row.col.s32.s8.s8.s32", "{w4}={w2}{w1}{w4}", multiply_8bit<int8_t, int8_t, 16>);
}

}  // namespace softgpu::SOFTGPU_ISA
