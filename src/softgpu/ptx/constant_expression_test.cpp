// Constant expressions: the operators of the PTX ISA, how tightly they bind, and where numbers may stand.
#include "softgpu/ptx/constant_expression.h"
#include <limits>

#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::compile_one;
using softgpu::testing::kernel;
using softgpu::testing::run;

namespace {

int64_t value_of(std::string_view text) {
  ptx::Lexer lexer(text);
  const auto value = static_cast<int64_t>(ptx::parse_constant_expression(lexer));
  CHECK(lexer.peek().kind == ptx::TokenKind::end);
  return value;
}

}  // namespace

TEST_CASE("constant expressions bind as in C") {
  CHECK(value_of("-4+2") == -2);
  CHECK(value_of("-4*2-1") == -9);
  CHECK(value_of("~0+1") == 0);
  CHECK(value_of("!0+1") == 2);
  CHECK(value_of("- -4") == 4);
  CHECK(value_of("2+3*4") == 14);
  CHECK(value_of("(2+3)*4") == 20);
  CHECK(value_of("10-4-3") == 3);
  CHECK(value_of("1<<2+1") == 8);
  CHECK(value_of("1<<2<5") == 1);
  CHECK(value_of("1<2==1") == 1);
  CHECK(value_of("6&3==3") == 0);
  CHECK(value_of("1|6^4&12") == 3);
  CHECK(value_of("1|2&&0") == 0);
  CHECK(value_of("1||0&&0") == 1);
  CHECK(value_of("0?1:0?2:3") == 3);
  CHECK(value_of("1+1?10:20") == 10);
  CHECK(value_of("3!=3") == 0);
  CHECK(value_of("4>=4") == 1);
  CHECK(value_of("5<=4") == 0);
  CHECK(value_of("WARP_SZ*2") == 64);
}

TEST_CASE("a U, a large number, ~ and a cast make an expression unsigned") {
  CHECK(value_of("-1<1") == 1);
  CHECK(value_of("-1<1U") == 0);
  CHECK(value_of("-1>>60") == -1);
  CHECK(value_of("(.u64)-1>>60") == 15);
  CHECK(value_of("0xffffffffffffffff>>60") == 15);
  CHECK(value_of("(.s64)0xffffffffffffffff>>60") == -1);
  CHECK(value_of("~0>>60") == 15);
  CHECK(value_of("-8/2") == -4);
  CHECK(value_of("-8U/2") == 0x7ffffffffffffffc);
  CHECK(value_of("-7 % 4") == 1);  // unsigned, as the PTX ISA has it
  CHECK(value_of("(-9223372036854775807-1)/-1") == std::numeric_limits<int64_t>::min());
}

TEST_CASE("operands are constant expressions") {
  const auto out = run(kernel("mov.u32 %r1, -4+2; st.global.u32 [%out], %r1;\n"
                              "mov.u32 %r1, 4+2; st.global.u32 [%out+12-8], %r1;\n"
                              "mov.u32 %r1, (1<<3)-1; st.global.u32 [%out+4*2], %r1;\n"
                              "mov.u32 %r1, !0; st.global.u32 [%out+4+2*4], %r1;\n"
                              "add.u32 %r1, 2*3, -1-1; st.global.u32 [%out+16], %r1;\n"),
                       1, 1, 5);
  CHECK(out == std::vector<uint32_t>{static_cast<uint32_t>(-2), 6, 7, 1, 4});
}

TEST_CASE("initial values of floating-point variables are constant expressions, too") {
  const auto out = run(kernel("mov.u64 %x1, v; ld.global.b32 %r1, [%x1]; st.global.u32 [%out], %r1;\n"
                              "ld.global.b32 %r1, [%x1+4]; st.global.u32 [%out+4], %r1;\n",
                              ".global .f32 v[2] = {-4+2, -1.5};\n"),
                       1, 1, 2);
  CHECK(out == std::vector<uint32_t>{0xc0000000, 0xbfc00000});
}

TEST_CASE("expressions that are none are refused") {
  for (const char* const text : {"4+", "(4", "4 < < 2 1", "1?2", "1/0", "-1 % 0", "1=1", "(.f64)1"}) {
    CAPTURE(text);
    const std::string statement = std::string("mov.u32 %r1, ") + text + ";";
    CHECK(compile_one(kernel(statement)).status == CompileStatus::syntax_error);
  }
  const std::string deep(100000, '(');
  CHECK(compile_one(kernel("mov.u32 %r1, " + deep + ";")).status == CompileStatus::syntax_error);
}
