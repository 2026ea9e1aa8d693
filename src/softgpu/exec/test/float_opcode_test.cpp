// Opcodes of floating-point numbers against what the host computes.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::evaluate;

namespace {

template <class F>
void float_pairs(std::vector<F>& a, std::vector<F>& b) {
  using L = std::numeric_limits<F>;
  const std::vector<F> values{F(0),
                              -F(0),
                              F(1),
                              F(-1),
                              F(1.5),
                              F(2.5),
                              F(0.1),
                              F(1e10),
                              F(-3.7),
                              L::max(),
                              L::lowest(),
                              L::min(),
                              L::denorm_min(),
                              -L::denorm_min(),
                              L::min() / 2,
                              L::infinity(),
                              -L::infinity(),
                              L::quiet_NaN(),
                              F(16777217),
                              F(1) / F(3)};
  for (const F x : values) {
    for (const F y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  }
}

template <class F>
bool same(F x, F y) {
  return (x != x && y != y) || (x == y && std::signbit(x) == std::signbit(y));
}

template <class F, class Function>
void check_float(const std::string& body, Function expected, int rounding = FE_TONEAREST) {
  std::vector<F> a, b;
  float_pairs(a, b);
  std::string error;
  const std::vector<F> d = evaluate<F, F>(body, a, b, {}, &error);
  INFO(body << " " << error);
  REQUIRE(d.size() == a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    volatile F x = a[i], y = b[i];
    std::fesetround(rounding);
    volatile F want = expected(x, y);
    std::fesetround(FE_TONEAREST);
    INFO(a[i] << " " << b[i] << " gives " << d[i] << " not " << want);
    CHECK(same<F>(d[i], want));
  }
}

float ftz(float v) {
  return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
}

}  // namespace

TEST_CASE("floating point arithmetic in every rounding mode") {
  struct Mode {
    const char* name;
    int host;
  };
  for (const Mode mode : {Mode{".rn", FE_TONEAREST}, Mode{".rz", FE_TOWARDZERO}, Mode{".rm", FE_DOWNWARD},
                          Mode{".rp", FE_UPWARD}}) {
    const std::string m = mode.name;
    check_float<float>("add" + m + ".f32 %d, %a, %b;", [](float a, float b) { return a + b; }, mode.host);
    check_float<float>("mul" + m + ".f32 %d, %a, %b;", [](float a, float b) { return a * b; }, mode.host);
    check_float<float>("div" + m + ".f32 %d, %a, %b;", [](float a, float b) { return a / b; }, mode.host);
    check_float<double>("sub" + m + ".f64 %d, %a, %b;", [](double a, double b) { return a - b; }, mode.host);
    check_float<double>("div" + m + ".f64 %d, %a, %b;", [](double a, double b) { return a / b; }, mode.host);
    check_float<float>(
        "fma" + m + ".f32 %d, %a, %b, %a;", [](float a, float b) { return std::fma(a, b, a); }, mode.host);
    check_float<double>(
        "fma" + m + ".f64 %d, %a, %b, %a;", [](double a, double b) { return std::fma(a, b, a); }, mode.host);
    check_float<float>("sqrt" + m + ".f32 %d, %a;", [](float a, float) { return std::sqrt(a); }, mode.host);
    check_float<double>("rcp" + m + ".f64 %d, %b;", [](double, double b) { return 1.0 / b; }, mode.host);
  }
}

TEST_CASE("how the program rounds, and what it does with subnormal numbers, is not the kernel's affair") {
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormal results and operands are zero
#endif
  const auto sums = evaluate<float, float>("add.f32 %d, %a, %b;", {1.0f}, {0x1p-40f});
  const auto bits = evaluate<uint32_t, float>("add.f32 %d, %a, %a;", {0x1p-149f});
  const int rounding = std::fegetround();
  std::fesetenv(&before);
  CHECK(sums == std::vector<float>{1.0f});
  CHECK(bits == std::vector<uint32_t>{2});
  CHECK(rounding == FE_UPWARD);
}

TEST_CASE("flush to zero and saturation") {
  check_float<float>("add.ftz.f32 %d, %a, %b;", [](float a, float b) { return ftz(ftz(a) + ftz(b)); });
  check_float<float>("mul.rn.ftz.f32 %d, %a, %b;", [](float a, float b) { return ftz(ftz(a) * ftz(b)); });
  check_float<float>("add.sat.f32 %d, %a, %b;", [](float a, float b) {
    const float s = a + b;
    return s > 0 ? std::min(s, 1.0f) : 0.0f;
  });
}

TEST_CASE("minimum and maximum treat NaN and signed zeros as the manual says") {
  check_float<float>("min.f32 %d, %a, %b;", [](float a, float b) {
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    return std::fmin(a, b);
  });
  check_float<double>("max.f64 %d, %a, %b;", [](double a, double b) {
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    return std::fmax(a, b);
  });
  check_float<float>("max.NaN.f32 %d, %a, %b;", [](float a, float b) {
    if (a != a || b != b) return std::numeric_limits<float>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    return std::fmax(a, b);
  });
}

TEST_CASE("comparisons, ordered and unordered") {
  struct Case {
    const char* name;
    bool (*f)(double, double);
  };
  for (const Case c : {Case{"lt", [](double a, double b) { return a < b; }},
                       Case{"ne", [](double a, double b) { return a < b || a > b; }},
                       Case{"neu", [](double a, double b) { return a != b; }},
                       Case{"geu", [](double a, double b) { return !(a < b); }},
                       Case{"num", [](double a, double b) { return a == a && b == b; }},
                       Case{"nan", [](double a, double b) { return a != a || b != b; }}}) {
    check_float<double>(std::string("setp.") + c.name +
                            ".f64 %p, %a, %b; selp.f64 %d, 0d3FF0000000000000, 0d0000000000000000, %p;",
                        [&](double a, double b) { return c.f(a, b) ? 1.0 : 0.0; });
    check_float<float>(
        std::string("setp.") + c.name + ".f32 %q|%p, %a, %b; selp.f32 %d, 0f3F800000, 0f00000000, %p;",
        [&](float a, float b) { return c.f(a, b) ? 0.0f : 1.0f; });
  }
  const std::vector<int32_t> a{-1, 0, 1, 5}, b{1, 0, -1, 5};
  auto d = evaluate<int32_t, int32_t>(
      "setp.eq.s32 %q, %a, 5; setp.lt.or.s32 %p, %a, %b, %q; selp.s32 %d, 1, 0, %p;", a, b);
  CHECK(d == std::vector<int32_t>{1, 0, 0, 1});
  d = evaluate<int32_t, int32_t>("setp.lo.u32 %p, %a, %b; selp.s32 %d, 1, 0, %p;", a, b);
  CHECK(d == std::vector<int32_t>{0, 0, 1, 0});
  d = evaluate<int32_t, int32_t>("set.gt.u32.s32 %d, %a, %b;", a, b);
  CHECK(d == std::vector<int32_t>{0, 0, -1, 0});
  d = evaluate<int32_t, int32_t>(
      "setp.eq.s32 %q, %a, 5; setp.lt.and.s32 %p, %a, %b, !%q; selp.s32 %d, 1, 0, %p;", a, b);
  CHECK(d == std::vector<int32_t>{1, 0, 0, 0});
}

TEST_CASE("approximations are close") {
  std::vector<float> a;
  for (int i = -400; i < 400; ++i) a.push_back(static_cast<float>(i) * 0.37f);
  struct Case {
    const char* opcode;
    double (*f)(double);
    double tolerance;
  };
  for (const Case c : {Case{"ex2.approx.f32", [](double x) { return std::exp2(x); }, 4e-7},
                       Case{"sin.approx.f32", [](double x) { return std::sin(x); }, 1e-6},
                       Case{"tanh.approx.f32", [](double x) { return std::tanh(x); }, 1e-6},
                       Case{"lg2.approx.f32", [](double x) { return std::log2(x); }, 4e-7},
                       Case{"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 3e-7}}) {
    const auto d = evaluate<float, float>(std::string(c.opcode) + " %d, %a;", a);
    REQUIRE(d.size() == a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double want = c.f(a[i]);
      INFO(c.opcode << " of " << a[i] << " gives " << d[i]);
      if (std::isnan(want))
        CHECK(std::isnan(d[i]));
      else if (std::isinf(static_cast<float>(want)))
        CHECK(d[i] == static_cast<float>(want));
      else
        CHECK(std::fabs(d[i] - want) <= c.tolerance * std::max(1.0, std::fabs(want)));
    }
  }
  const auto special = evaluate<float, float>("lg2.approx.f32 %d, %a;", {0.0f, -1.0f, INFINITY, 0x1p-140f});
  REQUIRE(special.size() == 4);
  CHECK(special[0] == -INFINITY);
  CHECK(std::isnan(special[1]));
  CHECK(special[2] == INFINITY);
  CHECK(special[3] == -140.0f);
}
