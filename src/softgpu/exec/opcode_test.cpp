// Every family of opcodes against what the host computes.
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

#include "doctest/doctest.h"
#include "softgpu/exec/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::evaluate;

namespace {

// Interesting integers, all pairs of them.
template <class T>
void integer_pairs(std::vector<T>& a, std::vector<T>& b) {
  const std::vector<T> values{0,
                              1,
                              2,
                              3,
                              7,
                              100,
                              static_cast<T>(-1),
                              static_cast<T>(-2),
                              static_cast<T>(-100),
                              std::numeric_limits<T>::max(),
                              std::numeric_limits<T>::min(),
                              static_cast<T>(0x5555555555555555ull),
                              static_cast<T>(0x123456789abcdef0ull)};
  for (const T x : values) {
    for (const T y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  }
}

template <class T, class F>
void check_binary(const std::string& opcode, F expected) {
  std::vector<T> a, b;
  integer_pairs(a, b);
  std::string error;
  const std::vector<T> d = evaluate<T, T>(opcode + " %d, %a, %b;", a, b, {}, &error);
  INFO(opcode << " " << error);
  REQUIRE(d.size() == a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(a[i] << " " << b[i]);
    CHECK(d[i] == static_cast<T>(expected(a[i], b[i])));
  }
}

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

TEST_CASE("integer arithmetic wraps") {
  check_binary<uint32_t>("add.u32", [](uint32_t a, uint32_t b) { return a + b; });
  check_binary<uint64_t>("sub.s64", [](uint64_t a, uint64_t b) { return a - b; });
  check_binary<uint16_t>("mul.lo.u16", [](uint32_t a, uint32_t b) { return a * b; });
  check_binary<uint32_t>("mul.lo.s32", [](uint32_t a, uint32_t b) { return a * b; });
  check_binary<uint64_t>("mul.lo.s64", [](uint64_t a, uint64_t b) { return a * b; });
  check_binary<int32_t>("mul.hi.s32", [](int64_t a, int64_t b) { return (a * b) >> 32; });
  check_binary<uint64_t>("mul.hi.u64", [](uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  });
  check_binary<int16_t>("mul.hi.s16", [](int32_t a, int32_t b) { return (a * b) >> 16; });
}

TEST_CASE("division, remainder, minimum, maximum") {
  check_binary<int32_t>("div.s32", [](int64_t a, int64_t b) { return b == 0 ? -1 : a / b; });
  check_binary<uint32_t>("div.u32", [](uint32_t a, uint32_t b) { return b == 0 ? ~0u : a / b; });
  check_binary<int64_t>("rem.s64", [](int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; });
  check_binary<uint16_t>("rem.u16", [](uint16_t a, uint16_t b) { return b == 0 ? a : a % b; });
  check_binary<int32_t>("min.s32", [](int32_t a, int32_t b) { return std::min(a, b); });
  check_binary<uint32_t>("max.u32", [](uint32_t a, uint32_t b) { return std::max(a, b); });
  check_binary<int64_t>("max.s64", [](int64_t a, int64_t b) { return std::max(a, b); });
  check_binary<uint16_t>("min.u16", [](uint16_t a, uint16_t b) { return std::min(a, b); });
  check_binary<int32_t>("add.sat.s32", [](int64_t a, int64_t b) {
    return std::clamp<int64_t>(a + b, std::numeric_limits<int32_t>::min(),
                               std::numeric_limits<int32_t>::max());
  });
}

TEST_CASE("multiply and add, wide and 24 bit, dot products") {
  const std::vector<uint32_t> a{3, 0xffffffff, 0x12345678, 0x80}, b{5, 0xffffffff, 0x9abcdef0, 0x7f},
      c{7, 1, 0xffffffff, 9};
  auto d = evaluate<uint32_t, uint32_t>("mad.lo.u32 %d, %a, %b, %c;", a, b, c);
  REQUIRE(d.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(d[i] == a[i] * b[i] + c[i]);
  d = evaluate<uint32_t, uint32_t>("mul24.lo.u32 %d, %a, %b;", a, b);
  for (int i = 0; i < 4; ++i)
    CHECK(d[i] == static_cast<uint32_t>(uint64_t{a[i] & 0xffffff} * (b[i] & 0xffffff)));
  d = evaluate<uint32_t, uint32_t>("sad.s32 %d, %a, %b, %c;", a, b, c);
  for (int i = 0; i < 4; ++i) {
    CHECK(d[i] == static_cast<uint32_t>(std::llabs(int64_t{int32_t(a[i])} - int32_t(b[i])) + c[i]));
  }
  d = evaluate<uint32_t, uint32_t>("dp4a.s32.u32 %d, %a, %b, %c;", a, b, c);
  for (int i = 0; i < 4; ++i) {
    uint32_t want = c[i];
    for (int k = 0; k < 32; k += 8)
      want += static_cast<uint32_t>(int8_t(a[i] >> k) * int32_t(uint8_t(b[i] >> k)));
    CHECK(d[i] == want);
  }
  const auto wide = evaluate<uint64_t, uint32_t>("mul.wide.s32 %d, %a, %b;", a, b);
  REQUIRE(wide.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(wide[i] == static_cast<uint64_t>(int64_t{int32_t(a[i])} * int32_t(b[i])));
}

TEST_CASE("carry chains add 128-bit numbers") {
  const std::vector<uint64_t> a{~0ull, 1, 0x8000000000000000ull}, b{1, ~0ull, 0x8000000000000000ull};
  auto high = evaluate<uint64_t, uint64_t>("add.cc.u64 %x0, %a, %b; addc.u64 %d, %a, %b;", a, b);
  REQUIRE(high.size() == 3);
  for (int i = 0; i < 3; ++i) {
    const auto wide = static_cast<unsigned __int128>(a[i]);
    CHECK(high[i] == a[i] + b[i] + static_cast<uint64_t>((wide + b[i]) >> 64));
  }
  high = evaluate<uint64_t, uint64_t>("sub.cc.u64 %x0, %a, %b; subc.u64 %d, %b, %a;", a, b);
  for (int i = 0; i < 3; ++i) CHECK(high[i] == b[i] - a[i] - (a[i] < b[i]));
  const std::vector<uint32_t> m{0xffffffff, 5}, n{0xffffffff, 7}, k{0xffffffff, 3};
  const auto product =
      evaluate<uint32_t, uint32_t>("mad.lo.cc.u32 %t0, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0;", m, n, k);
  REQUIRE(product.size() == 2);
  for (int i = 0; i < 2; ++i)
    CHECK(product[i] == static_cast<uint32_t>((uint64_t{m[i]} * n[i] + k[i]) >> 32));
}

TEST_CASE("shifts clamp their amount, bit fields and permutations") {
  const std::vector<uint32_t> a{0x80000001, 0x12345678, 0xffffffff, 0, 0xf0f0}, n{0, 4, 31, 32, 200};
  auto d = evaluate<uint32_t, uint32_t>("shl.b32 %d, %a, %b;", a, n);
  REQUIRE(d.size() == 5);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == (n[i] > 31 ? 0 : a[i] << n[i]));
  d = evaluate<uint32_t, uint32_t>("shr.s32 %d, %a, %b;", a, n);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == static_cast<uint32_t>(int32_t(a[i]) >> std::min(n[i], 31u)));
  d = evaluate<uint32_t, uint32_t>("shf.l.wrap.b32 %d, %a, %b, %b;", a, n);
  for (int i = 0; i < 5; ++i) {
    const uint64_t both = uint64_t{n[i]} << 32 | a[i];
    CHECK(d[i] == static_cast<uint32_t>(both << (n[i] & 31) >> 32));
  }
  d = evaluate<uint32_t, uint32_t>("bfe.s32 %d, %a, 4, 8;", a);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == static_cast<uint32_t>(int8_t(a[i] >> 4)));
  d = evaluate<uint32_t, uint32_t>("bfi.b32 %d, %a, %b, 8, 4;", a, n);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == ((n[i] & ~0xf00u) | (a[i] & 15) << 8));
  d = evaluate<uint32_t, uint32_t>("popc.b32 %d, %a;", a);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == static_cast<uint32_t>(std::popcount(a[i])));
  d = evaluate<uint32_t, uint32_t>("bfind.u32 %d, %a;", a);
  for (int i = 0; i < 5; ++i)
    CHECK(d[i] == (a[i] == 0 ? ~0u : 31 - static_cast<uint32_t>(std::countl_zero(a[i]))));
  d = evaluate<uint32_t, uint32_t>(
      "brev.b32 %t0, %a; brev.b32 %t0, %t0; clz.b32 %t1, %a; xor.b32 %d, %t0, %t1;", a);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == (a[i] ^ static_cast<uint32_t>(std::countl_zero(a[i]))));
  d = evaluate<uint32_t, uint32_t>("prmt.b32 %d, %a, %b, 0x1b47;", a, n);
  for (int i = 0; i < 5; ++i) {
    const uint64_t both = uint64_t{n[i]} << 32 | a[i];
    const auto byte = [&](int k) { return static_cast<uint32_t>(both >> (8 * k)) & 255; };
    const uint32_t sign = byte(3) & 0x80 ? 255 : 0;
    CHECK(d[i] == (byte(7) | byte(4) << 8 | sign << 16 | byte(1) << 24));
  }
  d = evaluate<uint32_t, uint32_t>("lop3.b32 %d, %a, %b, %b, 0x96;", a, n);
  for (int i = 0; i < 5; ++i) CHECK(d[i] == (a[i] ^ n[i] ^ n[i]));
}

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

TEST_CASE("conversions between integers and floating point clamp and round") {
  const std::vector<float> a{0.5f,  1.5f, -1.5f, 2.5f, 3e9f, -3e9f, std::numeric_limits<float>::quiet_NaN(),
                             1e30f, -0.7f};
  CHECK(evaluate<int32_t, float>("cvt.rzi.s32.f32 %d, %a;", a) ==
        std::vector<int32_t>{0, 1, -1, 2, INT32_MAX, INT32_MIN, 0, INT32_MAX, 0});
  CHECK(evaluate<int32_t, float>("cvt.rni.s32.f32 %d, %a;", a) ==
        std::vector<int32_t>{0, 2, -2, 2, INT32_MAX, INT32_MIN, 0, INT32_MAX, -1});
  CHECK(evaluate<int32_t, float>("cvt.rmi.s32.f32 %d, %a;", a) ==
        std::vector<int32_t>{0, 1, -2, 2, INT32_MAX, INT32_MIN, 0, INT32_MAX, -1});
  CHECK(evaluate<int32_t, float>("cvt.rpi.s32.f32 %d, %a;", a) ==
        std::vector<int32_t>{1, 2, -1, 3, INT32_MAX, INT32_MIN, 0, INT32_MAX, 0});
  CHECK(evaluate<uint64_t, float>("cvt.rzi.u64.f32 %d, %a;", a) ==
        std::vector<uint64_t>{0, 1, 0, 2, 3000000000ull, 0, uint64_t{1} << 63, UINT64_MAX, 0});
  CHECK(evaluate<float, float>("cvt.rpi.f32.f32 %d, %a;", {0.2f, -0.2f, 2.0f}) ==
        std::vector<float>{1, -0.0f, 2});
  const std::vector<int64_t> wide{(1ll << 53) + 1, -((1ll << 53) + 1), 16777217, INT64_MAX};
  auto host = [&](int mode) {
    std::vector<float> want;
    for (volatile int64_t v : wide) {
      std::fesetround(mode);
      volatile float f = static_cast<float>(v);
      std::fesetround(FE_TONEAREST);
      want.push_back(static_cast<float>(f));
    }
    return want;
  };
  CHECK(evaluate<float, int64_t>("cvt.rn.f32.s64 %d, %a;", wide) == host(FE_TONEAREST));
  CHECK(evaluate<float, int64_t>("cvt.rm.f32.s64 %d, %a;", wide) == host(FE_DOWNWARD));
  CHECK(evaluate<float, int64_t>("cvt.rp.f32.s64 %d, %a;", wide) == host(FE_UPWARD));
  const std::vector<double> doubles{1.0 / 3, 1e-40, 1e300, -2.5};
  const auto narrow = evaluate<float, double>("cvt.rn.f32.f64 %d, %a;", doubles);
  REQUIRE(narrow.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(narrow[i] == static_cast<float>(doubles[i]));
}

TEST_CASE("integer conversions use the operand types, not the register sizes") {
  const std::vector<uint32_t> a{0x12345680, 0x7f, 0xffffff00, 300};
  CHECK(evaluate<uint32_t, uint32_t>("cvt.s32.s8 %d, %a;", a) ==
        std::vector<uint32_t>{0xffffff80, 0x7f, 0, 44});
  CHECK(evaluate<uint32_t, uint32_t>("cvt.u32.u8 %d, %a;", a) == std::vector<uint32_t>{0x80, 0x7f, 0, 44});
  CHECK(evaluate<uint32_t, uint32_t>("cvt.sat.u8.u32 %d, %a;", a) ==
        std::vector<uint32_t>{255, 127, 255, 255});
  CHECK(evaluate<uint32_t, uint32_t>("cvt.sat.s8.s32 %d, %a;", a) ==
        std::vector<uint32_t>{127, 127, 0xffffff80, 127});
  CHECK(evaluate<uint64_t, uint32_t>("cvt.s64.s32 %d, %a;", a)[2] == 0xffffffffffffff00ull);
  CHECK(evaluate<uint16_t, uint32_t>("cvt.u16.u32 %d, %a;", a) ==
        std::vector<uint16_t>{0x5680, 0x7f, 0xff00, 300});
}

TEST_CASE("every half survives the way to f32 and back, and rounding is to nearest even") {
  std::vector<uint16_t> all;
  for (uint32_t h = 0; h < 0x10000; h += 3) all.push_back(static_cast<uint16_t>(h));
  // In portions: the test device is small.
  for (size_t begin = 0; begin < all.size(); begin += 8192) {
    const std::vector<uint16_t> part(all.begin() + begin, all.begin() + std::min(begin + 8192, all.size()));
    const auto back = evaluate<uint16_t, uint16_t>("cvt.f32.f16 %t0, %a; cvt.rn.f16.f32 %d, %t0;", part);
    REQUIRE(back.size() == part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      if ((part[i] & 0x7fff) > 0x7c00)
        CHECK(back[i] == 0x7fff);
      else
        CHECK(back[i] == part[i]);
    }
  }
  const std::vector<float> values{65519.0f,      65520.0f,      2048.0f + 1,   2048.0f + 3,
                                  5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f, -1e-10f};
  CHECK(evaluate<uint16_t, float>("cvt.rn.f16.f32 %d, %a;", values) ==
        std::vector<uint16_t>{0x7bff, 0x7c00, 0x6800, 0x6802, 0x0001, 0x0000, 0x0001, 0x8000});
  CHECK(evaluate<uint16_t, float>("cvt.rz.f16.f32 %d, %a;", values) ==
        std::vector<uint16_t>{0x7bff, 0x7bff, 0x6800, 0x6801, 0x0001, 0x0000, 0x0000, 0x8000});
  CHECK(evaluate<uint16_t, float>("cvt.rp.f16.f32 %d, %a;", values) ==
        std::vector<uint16_t>{0x7c00, 0x7c00, 0x6801, 0x6802, 0x0001, 0x0001, 0x0001, 0x8000});
  CHECK(evaluate<uint16_t, float>("cvt.rn.bf16.f32 %d, %a;", {1.0f, 1.00390625f, 1.01171875f, 3.4e38f}) ==
        std::vector<uint16_t>{0x3f80, 0x3f80, 0x3f82, 0x7f80});
}

TEST_CASE("half arithmetic rounds once") {
  // 1 + 2^-11 lies half way between two halves: to even.
  const std::vector<uint16_t> a{0x3c00, 0x3c01, 0x7bff, 0x4000}, b{0x1000, 0x1000, 0x7bff, 0xc000};
  CHECK(evaluate<uint16_t, uint16_t>("add.rn.f16 %d, %a, %b;", a, b) ==
        std::vector<uint16_t>{0x3c00, 0x3c02, 0x7c00, 0x0000});
  // (1 + 2^-10)^2 + 2^-11 lies 2^-20 above half way: only a single rounding goes up.
  CHECK(evaluate<uint16_t, uint16_t>("fma.rn.f16 %d, %a, %a, %b;", a, b) ==
        std::vector<uint16_t>{0x3c00, 0x3c03, 0x7c00, 0x4000});
  const std::vector<uint32_t> pa{0x3c004000}, pb{0x40003c00};
  CHECK(evaluate<uint32_t, uint32_t>("mul.f16x2 %d, %a, %b;", pa, pb) == std::vector<uint32_t>{0x40004000});
  CHECK(evaluate<uint32_t, uint32_t>("max.bf16x2 %d, %a, %b;", pa, pb) == std::vector<uint32_t>{0x40004000});
  CHECK(evaluate<uint16_t, uint16_t>("setp.gt.f16 %p, %a, %b; selp.b16 %d, 1, 0, %p;", a, b) ==
        std::vector<uint16_t>{1, 1, 0, 1});
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

TEST_CASE("moves pack and unpack vectors") {
  const std::vector<uint32_t> a{0x11112222}, b{0x33334444};
  CHECK(evaluate<uint64_t, uint32_t>("mov.b64 %d, {%a, %b};", a, b) ==
        std::vector<uint64_t>{0x3333444411112222});
  CHECK(evaluate<uint32_t, uint32_t>("mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};", a) ==
        std::vector<uint32_t>{0x22221111});
  CHECK(evaluate<uint32_t, uint64_t>("mov.b64 {_, %d}, %a;", {0x5555666677778888ull}) ==
        std::vector<uint32_t>{0x55556666});
  CHECK(evaluate<uint32_t, uint32_t>(
            ".reg .b8 %c<4>; mov.b32 {%c0, %c1, %c2, %c3}, %a; mov.b16 %h0, {%c3, %c0};"
            " mov.b16 {%c1, _}, %h0; mov.b32 %d, {%c0, %c1, %c2, %c1};",
            {0x44332211}) == std::vector<uint32_t>{0x44334411});
}

TEST_CASE("what Triton writes: braces around one register, extrema of three, sums of mixed formats") {
  CHECK(evaluate<float, float>("max.f32 %d, %a, 0f40000000, 0f40400000;", {1.0f, 5.0f, NAN}) ==
        std::vector<float>{3.0f, 5.0f, 3.0f});
  CHECK(evaluate<float, float>("min.NaN.f32 %d, %a, 0f40000000, 0f40400000;", {1.0f, 5.0f}) ==
        std::vector<float>{1.0f, 2.0f});
  CHECK(std::isnan(evaluate<float, float>("min.NaN.f32 %d, 0f40000000, 0f40400000, %a;", {NAN})[0]));
  // 0x3c01 is the half after 1, and 0x1p-24 the last bit of what is added to it.
  CHECK(evaluate<float, float>("mov.b16 %h0, 0x3c01; add.rn.f32.f16 %d, %h0, %a;", {0x1p-20f, -1.0f}) ==
        std::vector<float>{1.0f + 0x1p-10f + 0x1p-20f, 0x1p-10f});
  CHECK(evaluate<float, float>("mov.b16 %h0, 0x3f80; sub.rz.f32.bf16 %d, %h0, %a;", {0x1p-30f, -0x1p-30f}) ==
        std::vector<float>{1.0f - 0x1p-24f, 1.0f});
  CHECK(evaluate<float, float>("mov.b16 %h0, 0x4000; fma.rn.sat.f32.f16 %d, %h0, %h0, %a;", {-3.5f, 2.0f}) ==
        std::vector<float>{0.5f, 1.0f});
}

TEST_CASE("ue8m0 holds powers of two, rounded down or up, and NaN") {
  const std::vector<float> a{1.0f, 1.5f, -3.0f, 0.0f, 0x1p-127f, 0x1.8p-127f, INFINITY, NAN, 0x1.fp127f};
  const std::string store = " cvt.u32.u16 %d, %h0;";
  const auto with = [&](const std::string& how) {
    return evaluate<uint32_t, float>("cvt." + how + ".ue8m0x2.f32 %h0, 0f3F800000, %a;" + store, a);
  };
  const auto expected = [](std::vector<uint32_t> low) {
    for (uint32_t& value : low) value |= 127u << 8;  // the upper half is 1.0
    return low;
  };
  CHECK(with("rz") == expected({127, 127, 128, 0, 0, 0, 255, 255, 254}));
  CHECK(with("rp") == expected({127, 128, 129, 0, 0, 1, 255, 255, 255}));
  CHECK(with("rp.satfinite") == expected({127, 128, 129, 0, 0, 1, 254, 255, 254}));
  CHECK(evaluate<uint32_t, uint32_t>("cvt.rp.satfinite.ue8m0x2.bf16x2 %h0, %a;" + store,
                                     {0x3fc0'7f80, 0xc000'7fc0}) == std::vector<uint32_t>{0x80fe, 0x80ff});
  CHECK(evaluate<uint32_t, uint32_t>("cvt.u16.u32 %h0, %a; cvt.rn.bf16x2.ue8m0x2 %d, %h0;",
                                     {0x7f00, 0xff80}) == std::vector<uint32_t>{0x3f80'0040, 0x7fff'4000});
}
