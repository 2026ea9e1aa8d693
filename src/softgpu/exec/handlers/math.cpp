// The hardware's approximations: rcp rsqrt sqrt (f64 seeds), sin cos ex2 lg2 tanh. Ours are at least as
// exact.
#include <cmath>

#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// 2^x = 2^n * 2^f with n = round(x), |f| <= 1/2; Taylor series of e^(f ln 2), truncation below 2^-27.
SOFTGPU_INLINE float power_of_two(float x) {
  // A NaN becomes a number too, until the end: converting it to an integer is undefined.
  const float limited = !(x >= -160.0f) ? -160.0f : x > 160.0f ? 160.0f : x;
  const float n = std::nearbyint(limited);
  const float f = (limited - n) * 0.693147180559945f;
  float p = 1.98412698e-4f;
  p = p * f + 1.38888889e-3f;
  p = p * f + 8.33333333e-3f;
  p = p * f + 4.16666667e-2f;
  p = p * f + 1.66666667e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  // In two halves, so that subnormal results are reached by one rounding and large ones overflow.
  const auto whole = static_cast<int32_t>(n);
  const int32_t half = whole / 2, rest = whole - half;
  const float result =
      p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((rest + 127) << 23);
  return x != x ? x : result;
}

// log2(m 2^e) = e + log2(m), m in [sqrt(1/2), sqrt(2)), by the series of artanh((m-1)/(m+1)).
SOFTGPU_INLINE float logarithm(float x) {
  const bool tiny = x < 0x1p-126f;
  const float scaled = tiny ? x * 0x1p24f : x;
  const auto bits = std::bit_cast<uint32_t>(scaled);
  const int32_t shift = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(shift) << 23));
  const float exponent = static_cast<float>(shift) - (tiny ? 24.0f : 0.0f);
  const float s = (m - 1.0f) / (m + 1.0f), t = s * s;
  float p = 0.2222222222f;
  p = p * t + 0.2857142857f;
  p = p * t + 0.4f;
  p = p * t + 0.6666666667f;
  const float series = (p * t + 2.0f) * s;
  const float result = series * 1.44269504089f + exponent;
  const float special =
      x == 0.0f ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  const float big = x == std::numeric_limits<float>::infinity() ? x : result;
  return x > 0.0f ? big : x != x ? x : special;
}

struct Exp2 {
  SOFTGPU_INLINE static float apply(float a) { return power_of_two(a); }
};
struct Log2 {
  SOFTGPU_INLINE static float apply(float a) { return logarithm(a); }
};
struct ReciprocalRoot {
  SOFTGPU_INLINE static float apply(float a) { return 1.0f / __builtin_sqrtf(a); }
};
template <class Op>
struct Flushed {
  SOFTGPU_INLINE static float apply(float a) { return flush(Op::apply(flush(a))); }
};

// Functions of the C library, one active lane after the other.
struct Sine {
  static float apply(float a) { return std::sin(a); }
};
struct Cosine {
  static float apply(float a) { return std::cos(a); }
};
struct Tangent {
  static float apply(float a) { return std::tanh(a); }
};
template <class Op>
void by_lane(Warp& warp, const Instruction& in) {
  const float* const a = reg<float>(warp, in.op[1]);
  float* const d = reg<float>(warp, in.op[0]);
  const bool ftz = in.aux & ftz_flag;
  each_active(warp, [=](uint32_t i) {
    const float value = Op::apply(ftz ? flush(a[i]) : a[i]);
    d[i] = ftz ? flush(value) : value;
  });
}

// Seeds for Newton iterations: only the upper half of the result is given, subnormals are flushed.
SOFTGPU_INLINE double upper_half(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if ((bits >> 52 & 0x7ff) == 0) return std::bit_cast<double>(bits & (uint64_t{1} << 63));
  return std::bit_cast<double>(bits & 0xffffffff00000000u);
}
SOFTGPU_INLINE double flush_double(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  return (bits >> 52 & 0x7ff) == 0 ? std::bit_cast<double>(bits & (uint64_t{1} << 63)) : value;
}
struct ReciprocalSeed {
  SOFTGPU_INLINE static double apply(double a) { return upper_half(1.0 / flush_double(a)); }
};
struct RootSeed {
  SOFTGPU_INLINE static double apply(double a) { return upper_half(1.0 / __builtin_sqrt(flush_double(a))); }
};
struct ReciprocalRootDouble {
  SOFTGPU_INLINE static double apply(double a) { return 1.0 / __builtin_sqrt(a); }
};

}  // namespace

void register_math(OpcodeTable& table) {
  table.add("ex2.approx.f32", "w=w", unary<Exp2, float, float>);
  table.add("ex2.approx.ftz.f32", "w=w", unary<Flushed<Exp2>, float, float>);
  table.add("lg2.approx.f32", "w=w", unary<Log2, float, float>);
  table.add("lg2.approx.ftz.f32", "w=w", unary<Flushed<Log2>, float, float>);
  table.add("rsqrt.approx.f32", "w=w", unary<ReciprocalRoot, float, float>);
  table.add("rsqrt.approx.ftz.f32", "w=w", unary<Flushed<ReciprocalRoot>, float, float>);
  table.add("rsqrt.approx.f64", "x=x", unary<ReciprocalRootDouble, double, double>);
  table.add("rsqrt.approx.ftz.f64", "x=x", unary<RootSeed, double, double>);
  table.add("rcp.approx.ftz.f64", "x=x", unary<ReciprocalSeed, double, double>);
  table.add("sin.approx.f32", "w=w", by_lane<Sine>, 0);
  table.add("sin.approx.ftz.f32", "w=w", by_lane<Sine>, ftz_flag);
  table.add("cos.approx.f32", "w=w", by_lane<Cosine>, 0);
  table.add("cos.approx.ftz.f32", "w=w", by_lane<Cosine>, ftz_flag);
  table.add("tanh.approx.f32", "w=w", by_lane<Tangent>, 0);
}

}  // namespace softgpu::SOFTGPU_ISA
