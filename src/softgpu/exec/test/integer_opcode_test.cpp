// Opcodes of integers and bits against what the host computes.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

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
