// Numbers of different formats: conversions, halves, and arithmetic that mixes them.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::evaluate;

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
