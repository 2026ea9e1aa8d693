// add, sub and fma in f32 of 16-bit floating operands (compute capability 10.0 on): `add.rn.f32.f16 d, a, c`.
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

constexpr uint32_t subtract_flag = 0x100;

// d = a ± c, rounded once.
template <class F>
void add_mixed(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  const float* const c = reg<float>(warp, in.op[2]);
  const bool saturates = in.aux & sat_flag;
  const float sign = in.aux & subtract_flag ? -1.0f : 1.0f;
  const RoundingScope scope(in.aux & 7);
  write<float>(warp, in.op[0], [=](uint32_t i) {
    const float sum = F::load(a[i]) + sign * c[i];
    return saturates ? saturate_unit(sum) : sum;
  });
}

// d = a * b + c, rounded once.
template <class F>
void fma_mixed(Warp& warp, const Instruction& in) {
  const uint16_t* const a = reg<uint16_t>(warp, in.op[1]);
  const uint16_t* const b = reg<uint16_t>(warp, in.op[2]);
  const float* const c = reg<float>(warp, in.op[3]);
  const bool saturates = in.aux & sat_flag;
  const RoundingScope scope(in.aux & 7);
  write<float>(warp, in.op[0], [=](uint32_t i) {
    const float sum = __builtin_fmaf(F::load(a[i]), F::load(b[i]), c[i]);
    return saturates ? saturate_unit(sum) : sum;
  });
}

template <class F>
void register_format(OpcodeTable& table, const std::string& type) {
  static constexpr const char* mode_names[] = {".rn", ".rz", ".rm", ".rp"};
  for (uint32_t mode = 0; mode < 4; ++mode) {
    for (const uint32_t sat : {uint32_t{0}, uint32_t{sat_flag}}) {
      const std::string tail = std::string(sat ? ".sat" : "") + ".f32" + type;
      const std::string rounding = mode_names[mode];
      table.add("add" + rounding + tail, "w=hw", add_mixed<F>, mode | sat);
      table.add("sub" + rounding + tail, "w=hw", add_mixed<F>, mode | sat | subtract_flag);
      table.add("fma" + rounding + tail, "w=hhw", fma_mixed<F>, mode | sat);
      if (mode != 0) continue;  // without a suffix add and sub round to nearest even
      table.add("add" + tail, "w=hw", add_mixed<F>, sat);
      table.add("sub" + tail, "w=hw", add_mixed<F>, sat | subtract_flag);
    }
  }
}

}  // namespace

void register_mixed(OpcodeTable& table) {
  register_format<HalfFormat>(table, ".f16");
  register_format<BfloatFormat>(table, ".bf16");
}

}  // namespace softgpu::SOFTGPU_ISA
