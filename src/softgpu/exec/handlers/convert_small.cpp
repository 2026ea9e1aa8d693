// cvt between f32, f16x2, bf16x2 and pairs of the 8-, 6- and 4-bit formats: e4m3x2 e5m2x2 e3m2x2 e2m3x2 (two
// bytes in a 16-bit register) and e2m1x2 (one byte, in a register of 8 bits).
#include "softgpu/exec/handlers/small_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// aux: rounding mode and relu_flag as in rounding.h; from bit 8 on the small format, from bit 12 the wide
// one.
enum class Wide : uint32_t { f32, f16x2, bf16x2 };
constexpr uint32_t small_shift = 8, wide_shift = 12;

SOFTGPU_INLINE Small small_of(uint32_t aux) {
  return static_cast<Small>(aux >> small_shift & 0xf);
}
SOFTGPU_INLINE Wide wide_of(uint32_t aux) {
  return static_cast<Wide>(aux >> wide_shift & 0xf);
}
SOFTGPU_INLINE uint16_t join(Small which, uint32_t high, uint32_t low) {
  return static_cast<uint16_t>(which == Small::e2m1 ? high << 4 | low : high << 8 | low);
}
SOFTGPU_INLINE float load_half(Wide wide, uint32_t word, uint32_t which) {
  const auto bits = static_cast<uint16_t>(word >> (16 * which));
  return wide == Wide::f16x2 ? HalfFormat::load(bits) : BfloatFormat::load(bits);
}

// A value that is not finite saturates; .relu gives +0 for all that is negative, -0 included.
uint32_t to_small(float value, uint32_t aux) {
  const bool negative = std::bit_cast<uint32_t>(value) >> 31 && value == value;
  return round_to_format((aux & relu_flag) && negative ? 0.0 : double{value}, format_of_small(small_of(aux)),
                         aux & 7, true);
}

// cvt.rn.satfinite.e4m3x2.f32 d, a, b: a in the upper half
void floats_to_small(Warp& warp, const Instruction& in) {
  const float* const a = reg<float>(warp, in.op[1]);
  const float* const b = reg<float>(warp, in.op[2]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t aux = in.aux;
  each_active(warp,
              [=](uint32_t i) { d[i] = join(small_of(aux), to_small(a[i], aux), to_small(b[i], aux)); });
}
// cvt.rn.satfinite.e4m3x2.f16x2 d, a
void halves_to_small(Warp& warp, const Instruction& in) {
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  uint16_t* const d = reg<uint16_t>(warp, in.op[0]);
  const uint32_t aux = in.aux;
  each_active(warp, [=](uint32_t i) {
    d[i] = join(small_of(aux), to_small(load_half(wide_of(aux), a[i], 1), aux),
                to_small(load_half(wide_of(aux), a[i], 0), aux));
  });
}
// cvt.rn.f16x2.e4m3x2 d, a: exact (e5m2's range is half's)
void small_to_halves(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
  const uint32_t aux = in.aux;
  const Small which = small_of(aux);
  const auto& values = values_of(which);
  each_active(warp, [&, which, aux](uint32_t i) {
    const uint32_t low = which == Small::e2m1 ? a[i] & 0xfu : a[i] & 0xffu;
    const uint32_t high = which == Small::e2m1 ? a[i] >> 4 & 0xfu : a[i] >> 8;
    auto one = [&](uint32_t bits) -> uint32_t {
      float value = values[bits];
      if ((aux & relu_flag) && std::bit_cast<uint32_t>(value) >> 31 && value == value) value = 0;
      return wide_of(aux) == Wide::f16x2 ? HalfFormat::store(value) : BfloatFormat::store(value);
    };
    d[i] = one(high) << 16 | one(low);
  });
}

constexpr const char* small_format_names[] = {".e4m3x2", ".e5m2x2", ".e3m2x2", ".e2m3x2", ".e2m1x2"};
constexpr const char* wide_format_names[] = {".f32", ".f16x2", ".bf16x2"};

}  // namespace

void register_convert_small(OpcodeTable& table) {
  for (uint32_t small = 0; small < 5; ++small) {
    for (uint32_t wide = 0; wide < 3; ++wide) {
      for (const uint32_t relu : {uint32_t{0}, uint32_t{relu_flag}}) {
        const std::string clamped = relu != 0 ? ".relu" : "";
        const uint32_t formats = relu | small << small_shift | wide << wide_shift;
        for (const uint32_t mode : {uint32_t{round_nearest_even}, uint32_t{round_toward_zero}}) {
          const std::string cvt = mode == round_nearest_even ? "cvt.rn.satfinite" : "cvt.rz.satfinite";
          table.add(cvt + clamped + small_format_names[small] + wide_format_names[wide],
                    wide == 0 ? "h=ww" : "h=w", wide == 0 ? floats_to_small : halves_to_small,
                    formats | mode);
        }
        if (wide == 0) continue;
        table.add("cvt.rn" + clamped + wide_format_names[wide] + small_format_names[small], "w=h",
                  small_to_halves, formats);
      }
    }
  }
}

}  // namespace softgpu::SOFTGPU_ISA
