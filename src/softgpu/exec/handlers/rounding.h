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
enum Rounding : uint32_t { kNearestEven = 0, kTowardZero = 1, kDown = 2, kUp = 3, kNearestAway = 4 };
inline constexpr uint32_t kFtz = 8, kSat = 16, kRelu = 32;

// Sets the processor's rounding mode for its life. The barriers keep loads of operands and stores of
// results, and with them the arithmetic between, inside.
class RoundingScope {
 public:
  explicit RoundingScope(uint32_t mode) {
#if defined(__x86_64__)
    static constexpr uint32_t kBits[] = {0x0000, 0x6000, 0x2000, 0x4000, 0x0000};
    saved_ = _mm_getcsr();
    _mm_setcsr((saved_ & ~0x6000u) | kBits[mode & 7]);
#else
    static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    saved_ = std::fegetround();
    std::fesetround(kModes[mode & 7]);
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
