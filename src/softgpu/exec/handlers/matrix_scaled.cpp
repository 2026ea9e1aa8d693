// mma.sync with .block_scale: every 32 (or 16) elements of a row of A and of a column of B share a scale.
// Operands after d, a, b, c: scale of A, {byte, thread}, scale of B, {byte, thread}. In each quad of lanes
// the scales of A lie in lanes 2 * thread (rows 0..7) and 2 * thread + 1 (rows 8..15), that of B in lane
// `thread`.
#include "softgpu/exec/handlers/matrix_fragment.h"
#include "softgpu/exec/handlers/small_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// aux: bits 0..3 format of A, 4..7 of B, bit 8: packed fp4 and k = 64 (else a byte per element and k = 32),
// bit 9: scales are ue4m3, bits 12..: scales per row
constexpr uint32_t packed_four_flag = 1 << 8, fraction_scale_flag = 1 << 9, scales_shift = 12;

SOFTGPU_INLINE float scale_value(uint32_t bits, bool fraction) {
  return fraction ? values_of(Small::e4m3)[bits & 0x7f] : scale_of_exponent(bits);
}

void multiply_scaled(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const uint32_t aux = in.aux, scales = aux >> scales_shift;
  const auto which_a = static_cast<Small>(aux & 0xf), which_b = static_cast<Small>(aux >> 4 & 0xf);
  const bool packed = aux & packed_four_flag, fraction = aux & fraction_scale_flag;
  const Shape3 shape{16, packed ? 64u : 32u, packed ? 4u : 8u};
  const uint32_t* const list_a = in.list + 4;
  const uint32_t* const list_b = list_a + shape.a_registers();
  const uint32_t* const list_c = list_b + shape.b_registers();
  const uint32_t* const selectors = list_c + 4;  // byte and thread of A, byte and thread of B
  auto value = [packed](Small which, uint32_t bits) {
    return values_of(which)[!packed && which == Small::e2m1 ? bits >> 2 & 0xf : bits];
  };
  static thread_local Fragments<float> parts;
  read_fragments(
      warp, shape, list_a, list_b, parts, [=](uint32_t bits) { return value(which_a, bits); },
      [=](uint32_t bits) { return value(which_b, bits); });
  const uint32_t* const scale_a = reg<uint32_t>(warp, in.op[0]);
  const uint32_t* const scale_b = reg<uint32_t>(warp, in.op[1]);
  auto selector = [&](uint32_t which) -> uint32_t { return reg<uint16_t>(warp, selectors[which])[0]; };
  const uint32_t byte_a = selector(0) & 3, thread_a = selector(1) & 1, byte_b = selector(2) & 3,
                 thread_b = selector(3) & 3;
  float results[4][warp_lanes];
  const uint32_t block = shape.depth / scales;
  for (uint32_t r = 0; r < 4; ++r) {
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t row = result_row(lane, r), column = result_column(lane, r);
      const uint32_t word_a = scale_a[row % 8 * 4 + 2 * thread_a + row / 8];
      const uint32_t word_b = scale_b[column * 4 + thread_b];
      float sum = reg<float>(warp, list_c[r])[lane];
      for (uint32_t s = 0; s < scales; ++s) {
        float products = 0;
        for (uint32_t k = s * block; k < (s + 1) * block; ++k)
          products += parts.a[row][k] * parts.b[column][k];
        const float a = scale_value(word_a >> (8 * ((byte_a + s) & 3)) & 0xff, fraction);
        const float b = scale_value(word_b >> (8 * ((byte_b + s) & 3)) & 0xff, fraction);
        // In f64: two scales may overflow or vanish together though the sum does not.
        sum = static_cast<float>(double{sum} + double{products} * double{a} * double{b});
      }
      results[r][lane] = sum;
    }
  }
  each_active(warp, [&](uint32_t i) {
    for (uint32_t r = 0; r < 4; ++r) reg<float>(warp, in.list[r])[i] = results[r][i];
  });
}

constexpr const char* scaled_signature = "{w4}={w4}{w2}{w4}w{h2}w{h2}";

}  // namespace

void register_matrix_scaled(OpcodeTable& table) {
  static constexpr const char* element_names[] = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
  auto add = [&](const std::string& shape, const std::string& kind, const std::string& types, uint32_t aux) {
    // Both orders of shape and kind are written.
    table.add("mma.sync.aligned." + shape + ".row.col." + kind + types, scaled_signature, multiply_scaled,
              aux);
    table.add("mma.sync.aligned." + kind + "." + shape + ".row.col" + types, scaled_signature,
              multiply_scaled, aux);
  };
  for (uint32_t a = 0; a < 5; ++a) {
    for (uint32_t b = 0; b < 5; ++b) {
      const std::string types =
          std::string(".f32.") + element_names[a] + "." + element_names[b] + ".f32.ue8m0";
      for (const char* const vector : {"", ".scale_vec::1X"}) {
        add("m16n8k32", std::string("kind::mxf8f6f4.block_scale") + vector, types,
            a | b << 4 | 1 << scales_shift);
      }
    }
  }
  constexpr uint32_t packed_e2m1 = 4 | 4 << 4 | packed_four_flag;
  for (const char* const vector : {"", ".scale_vec::2X"}) {
    add("m16n8k64", std::string("kind::mxf4.block_scale") + vector, ".f32.e2m1.e2m1.f32.ue8m0",
        packed_e2m1 | 2 << scales_shift);
  }
  add("m16n8k64", "kind::mxf4nvf4.block_scale.scale_vec::2X", ".f32.e2m1.e2m1.f32.ue8m0",
      packed_e2m1 | 2 << scales_shift);
  add("m16n8k64", "kind::mxf4nvf4.block_scale.scale_vec::4X", ".f32.e2m1.e2m1.f32.ue8m0",
      packed_e2m1 | 4 << scales_shift);
  add("m16n8k64", "kind::mxf4nvf4.block_scale.scale_vec::4X", ".f32.e2m1.e2m1.f32.ue4m3",
      packed_e2m1 | 4 << scales_shift | fraction_scale_flag);
}

}  // namespace softgpu::SOFTGPU_ISA
