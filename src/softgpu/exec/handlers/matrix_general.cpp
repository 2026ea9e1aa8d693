// mma.sync of the shapes and types that matrix.cpp does not have: fp8, fp6 and fp4, 4-bit and 1-bit integers,
// saturating integers, f64.
#include <memory>
#include <vector>

#include "softgpu/exec/handlers/matrix_fragment.h"
#include "softgpu/exec/handlers/small_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// --- small floats: aux bits 0..3 format of A, 4..7 of B, bit 8 f16 results, 9.. k / 16, bit 16:
// .kind::f8f6f4 ---
constexpr uint32_t half_result_flag = 1 << 8, depth_shift = 9, padded_flag = 1 << 16;

// In .kind::f8f6f4 every element has a byte: fp6 in its low bits, fp4 in the middle.
SOFTGPU_INLINE float small_value(Small which, bool padded, uint32_t bits) {
  return values_of(which)[padded && which == Small::e2m1 ? bits >> 2 & 0xf : bits];
}

// C and D are four f32, or two f16x2.
SOFTGPU_INLINE float accumulator(const Warp& warp, const uint32_t* list, uint32_t r, uint32_t lane,
                                 bool half) {
  if (!half) return reg<float>(warp, list[r])[lane];
  return HalfFormat::load(static_cast<uint16_t>(reg<uint32_t>(warp, list[r / 2])[lane] >> (16 * (r % 2))));
}

void multiply_small_floats(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const auto which_a = static_cast<Small>(in.aux & 0xf), which_b = static_cast<Small>(in.aux >> 4 & 0xf);
  const bool half = in.aux & half_result_flag, padded = in.aux & padded_flag;
  const Shape3 shape{16, (in.aux >> depth_shift & 0x1f) * 16, 8};
  const uint32_t* const list_a = in.list + (half ? 2 : 4);
  const uint32_t* const list_b = list_a + shape.a_registers();
  const uint32_t* const list_c = list_b + shape.b_registers();
  static thread_local Fragments<float> parts;
  read_fragments(
      warp, shape, list_a, list_b, parts, [=](uint32_t bits) { return small_value(which_a, padded, bits); },
      [=](uint32_t bits) { return small_value(which_b, padded, bits); });
  float results[4][warp_lanes];
  for (uint32_t r = 0; r < 4; ++r) {
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const float* const row = parts.a[result_row(lane, r)];
      const float* const column = parts.b[result_column(lane, r)];
      float sum = accumulator(warp, list_c, r, lane, half);
      for (uint32_t k = 0; k < shape.depth; ++k) sum += row[k] * column[k];
      results[r][lane] = sum;
    }
  }
  each_active(warp, [&](uint32_t i) {
    for (uint32_t r = 0; r < 4; ++r) {
      if (!half) {
        reg<float>(warp, in.list[r])[i] = results[r][i];
      } else if (r % 2 == 0) {
        reg<uint32_t>(warp, in.list[r / 2])[i] =
            HalfFormat::store(results[r][i]) | uint32_t{HalfFormat::store(results[r + 1][i])} << 16;
      }
    }
  });
}

// --- integers: aux bits 0..8 k, bit 9 A signed, 10 B signed, 11 saturates, 12..13 how products are formed,
// 14 eight rows, 16.. element bits ---
constexpr uint32_t signed_a_flag = 1 << 9, signed_b_flag = 1 << 10, saturates_flag = 1 << 11,
                   eight_rows_flag = 1 << 14;
constexpr uint32_t xor_population_flag = 1 << 12, and_population_flag = 2 << 12, width_shift = 16;

SOFTGPU_INLINE int32_t extend(uint32_t bits, uint32_t width, bool is_signed) {
  const uint32_t unused = 32 - width;
  return is_signed ? static_cast<int32_t>(bits << unused) >> unused : static_cast<int32_t>(bits);
}

void multiply_integers(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const uint32_t width = in.aux >> width_shift, aux = in.aux;
  const Shape3 shape{aux & eight_rows_flag ? 8u : 16u, aux & 0x1ff, width};
  const uint32_t results_per_lane = shape.rows / 4;
  const uint32_t* const list_a = in.list + results_per_lane;
  const uint32_t* const list_b = list_a + shape.a_registers();
  const uint32_t* const list_c = list_b + shape.b_registers();
  static thread_local Fragments<int32_t> parts;
  read_fragments(
      warp, shape, list_a, list_b, parts,
      [=](uint32_t bits) { return extend(bits, width, aux & signed_a_flag); },
      [=](uint32_t bits) { return extend(bits, width, aux & signed_b_flag); });
  int32_t results[4][warp_lanes];
  for (uint32_t r = 0; r < results_per_lane; ++r) {
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const int32_t* const row = parts.a[result_row(lane, r)];
      const int32_t* const column = parts.b[result_column(lane, r)];
      int64_t sum = reg<int32_t>(warp, list_c[r])[lane];
      for (uint32_t k = 0; k < shape.depth; ++k) {
        sum += aux & xor_population_flag   ? row[k] ^ column[k]
               : aux & and_population_flag ? row[k] & column[k]
                                           : row[k] * column[k];
      }
      if (aux & saturates_flag) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
      results[r][lane] = static_cast<int32_t>(static_cast<uint32_t>(sum));
    }
  }
  each_active(warp, [&](uint32_t i) {
    for (uint32_t r = 0; r < results_per_lane; ++r) reg<int32_t>(warp, in.list[r])[i] = results[r][i];
  });
}

// --- f64, one element per register; aux: rows | k << 8 | rounding mode << 16. Each step is a fused one. ---
void multiply_doubles(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const uint32_t rows = in.aux & 0xff, depth = in.aux >> 8 & 0xff, halves = rows / 8;
  const uint32_t results_per_lane = rows / 4, a_registers = rows * depth / 32;
  const uint32_t* const list_a = in.list + results_per_lane;
  const uint32_t* const list_b = list_a + a_registers;
  const uint32_t* const list_c = list_b + depth / 4;
  double a[16][16], b[8][16], results[4][warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4;
    for (uint32_t r = 0; r < a_registers; ++r)
      a[group + 8 * (r % halves)][pair + 4 * (r / halves)] = reg<double>(warp, list_a[r])[lane];
    for (uint32_t r = 0; r < depth / 4; ++r) b[group][pair + 4 * r] = reg<double>(warp, list_b[r])[lane];
  }
  {
    const RoundingScope scope(in.aux >> 16);
    for (uint32_t r = 0; r < results_per_lane; ++r) {
      for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
        double sum = reg<double>(warp, list_c[r])[lane];
        for (uint32_t k = 0; k < depth; ++k)
          sum = __builtin_fma(a[result_row(lane, r)][k], b[result_column(lane, r)][k], sum);
        results[r][lane] = sum;
      }
    }
  }
  each_active(warp, [&](uint32_t i) {
    for (uint32_t r = 0; r < results_per_lane; ++r) reg<double>(warp, in.list[r])[i] = results[r][i];
  });
}

// --- registration ---

// "{w4}={w4}{w2}{w4}"; signatures must outlive the table.
const char* signature_of(char letter, uint32_t d, uint32_t a, uint32_t b) {
  static auto& kept = *new std::vector<std::unique_ptr<std::string>>;
  auto group = [&](uint32_t count) { return std::string("{") + letter + std::to_string(count) + "}"; };
  kept.push_back(std::make_unique<std::string>(group(d) + "=" + group(a) + group(b) + group(d)));
  return kept.back()->c_str();
}

void register_small_floats(OpcodeTable& table) {
  static constexpr const char* element_names[] = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
  for (const uint32_t depth : {16u, 32u}) {
    for (const bool half : {false, true}) {
      const Shape3 shape{16, depth, 8};
      const char* const signature = signature_of('w', half ? 2 : 4, shape.a_registers(), shape.b_registers());
      const std::string result = half ? "f16" : "f32";
      const std::string head = "mma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col.";
      for (uint32_t a = 0; a < 5; ++a) {
        for (uint32_t b = 0; b < 5; ++b) {
          const std::string types = result + "." + element_names[a] + "." + element_names[b] + "." + result;
          const uint32_t aux = a | b << 4 | (half ? half_result_flag : 0) | depth / 16 << depth_shift;
          if (a < 2 && b < 2) table.add(head + types, signature, multiply_small_floats, aux);
          if (depth != 32) continue;
          // Both orders of shape and kind are written.
          table.add(head + "kind::f8f6f4." + types, signature, multiply_small_floats, aux | padded_flag);
          table.add("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col." + types, signature,
                    multiply_small_floats, aux | padded_flag);
        }
      }
    }
  }
}

void register_integer_shape(OpcodeTable& table, uint32_t rows, uint32_t depth, uint32_t width) {
  const Shape3 shape{rows, depth, width};
  const char* const signature = signature_of('w', rows / 4, shape.a_registers(), shape.b_registers());
  const std::string head =
      "mma.sync.aligned.m" + std::to_string(rows) + "n8k" + std::to_string(depth) + ".row.col.";
  const uint32_t common = depth | width << width_shift | (rows == 8 ? eight_rows_flag : 0);
  if (width == 1) {
    table.add(head + "s32.b1.b1.s32.xor.popc", signature, multiply_integers, common | xor_population_flag);
    table.add(head + "s32.b1.b1.s32.and.popc", signature, multiply_integers, common | and_population_flag);
    return;
  }
  for (const uint32_t a : {0u, signed_a_flag}) {
    for (const uint32_t b : {0u, signed_b_flag}) {
      for (const uint32_t saturates : {0u, saturates_flag}) {
        const std::string bits = std::to_string(width);
        const std::string name = head + (saturates ? "satfinite.s32." : "s32.") + (a ? "s" : "u") + bits +
                                 "." + (b ? "s" : "u") + bits + ".s32";
        // matrix.cpp has faster ones of some of these.
        if (table.find(name) == nullptr)
          table.add(name, signature, multiply_integers, common | a | b | saturates);
      }
    }
  }
}

void register_double_shape(OpcodeTable& table, uint32_t rows, uint32_t depth) {
  static constexpr const char* mode_names[] = {".rn", ".rz", ".rm", ".rp"};
  const char* const signature = signature_of('x', rows / 4, rows * depth / 32, depth / 4);
  const std::string head =
      "mma.sync.aligned.m" + std::to_string(rows) + "n8k" + std::to_string(depth) + ".row.col";
  for (uint32_t mode = 0; mode < 4; ++mode) {
    const uint32_t aux = rows | depth << 8 | mode << 16;
    table.add(head + mode_names[mode] + ".f64.f64.f64.f64", signature, multiply_doubles, aux);
    if (mode == 0) table.add(head + ".f64.f64.f64.f64", signature, multiply_doubles, aux);
  }
}

}  // namespace

void register_matrix_general(OpcodeTable& table) {
  register_small_floats(table);
  register_integer_shape(table, 8, 16, 8);
  register_integer_shape(table, 16, 16, 8);
  register_integer_shape(table, 16, 32, 8);
  register_integer_shape(table, 8, 32, 4);
  register_integer_shape(table, 16, 32, 4);
  register_integer_shape(table, 16, 64, 4);
  register_integer_shape(table, 8, 128, 1);
  register_integer_shape(table, 16, 128, 1);
  register_integer_shape(table, 16, 256, 1);
  register_double_shape(table, 8, 4);
  register_double_shape(table, 16, 4);
  register_double_shape(table, 16, 8);
  register_double_shape(table, 16, 16);
}

}  // namespace softgpu::SOFTGPU_ISA
