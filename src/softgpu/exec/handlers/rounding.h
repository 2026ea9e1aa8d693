// Rounding modes and flush-to-zero.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// As in Instruction::aux, bits 0..2.
enum Rounding : uint32_t {
  round_nearest_even = 0,
  round_toward_zero = 1,
  round_down = 2,
  round_up = 3,
  round_nearest_away = 4
};
inline constexpr uint32_t ftz_flag = 8, sat_flag = 16, relu_flag = 32;

// Sets the processor's rounding mode for its life. The barriers keep loads of operands and stores of
// results, and with them the arithmetic between, inside.
class RoundingScope {
 public:
  explicit RoundingScope(uint32_t mode) {
#if defined(__x86_64__)
    static constexpr uint32_t control_bits[] = {0x0000, 0x6000, 0x2000, 0x4000, 0x0000};
    saved_ = _mm_getcsr();
    _mm_setcsr((saved_ & ~0x6000u) | control_bits[mode & 7]);
#else
    static constexpr int environment_modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD,
                                                FE_TONEAREST};
    saved_ = std::fegetround();
    std::fesetround(environment_modes[mode & 7]);
#endif
    asm volatile("" ::: "memory");
  }
  ~RoundingScope() {
    asm volatile("" ::: "memory");
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#else
    std::fesetround(saved_);
#endif
  }

 private:
#if defined(__x86_64__)
  uint32_t saved_;
#else
  int saved_;
#endif
};

// Subnormal -> zero of the same sign.
SOFTGPU_INLINE float flush(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7fffffffu) < 0x00800000u ? bits & 0x80000000u : bits);
}
SOFTGPU_INLINE double flush(double value) {
  return value;
}  // .ftz exists for f32 only

// Clamp to [0, 1]; NaN becomes 0.
template <class T>
SOFTGPU_INLINE T saturate_unit(T value) {
  return value > T(0) ? (value < T(1) ? value : T(1)) : T(0);
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA
