// Products and sums that round once, and those that must not (ptx/fuse_products.h).
#include <cmath>

#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::compile_one;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::run;

namespace {

// %f1 * %f1 is 1 + 2^-11 + 2^-24, which as a product is 1 + 2^-11, and %f2.
const std::string factors = "mov.f32 %f1, 0f3F800800; mov.f32 %f2, 0f3F801000;\n";

float sum(const std::string& code) {
  return std::bit_cast<float>(run(kernel(factors + code + "\nst.global.f32 [%out], %f4;"), 1, 1, 1)[0]);
}

const float rest = std::ldexp(1.0F, -24);

}  // namespace

TEST_CASE("a product without a rounding modifier and the sum behind it round once") {
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2;") == rest);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f2, %f3;") == -rest);
  CHECK(sum("neg.f32 %f2, %f2; mul.f32 %f3, %f1, %f1; add.f32 %f4, %f3, %f2;") == rest);
  CHECK(sum("neg.f32 %f2, %f2; mul.f32 %f3, %f1, %f1; add.f32 %f4, %f2, %f3;") == rest);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, 0f3F801000;") == rest);
  CHECK(sum("mul.f32 %f3, %f1, 0f3F800800; sub.f32 %f4, %f2, %f3;") == -rest);
  CHECK(sum("mul.ftz.f32 %f3, %f1, %f1; sub.ftz.f32 %f4, %f3, %f2;") == rest);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.sat.f32 %f4, %f3, %f2;") == rest);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.sat.f32 %f4, %f2, %f3;") == 0);
  // Of two products the first.
  CHECK(
      sum("mov.f32 %f5, 0f3F800000; mul.f32 %f3, %f1, %f1; mul.f32 %f6, %f2, %f5; sub.f32 %f4, %f3, %f6;") ==
      rest);
  CHECK(
      sum("mov.f32 %f5, 0f3F800000; mul.f32 %f3, %f1, %f1; mul.f32 %f6, %f2, %f5; sub.f32 %f4, %f6, %f3;") ==
      0);
}

TEST_CASE("the jumps of a function still lead where they led") {
  CHECK(sum(R"(
    mov.u32 %r1, 0; mov.f32 %f4, 0f00000000;
  AGAIN:
    mul.f32 %f3, %f1, %f1; sub.f32 %f5, %f3, %f2;
    add.f32 %f4, %f4, %f5; add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 5; @%p1 bra AGAIN;
    bra END;
    mov.f32 %f4, 0f00000000;
  END:)") == 5 * rest);
}

TEST_CASE("other products and sums round twice") {
  CHECK(sum("mul.rn.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.rn.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("mul.sat.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2;") == 1 - std::bit_cast<float>(0x3F801000));
  CHECK(sum("mul.ftz.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2; st.global.f32 [%out+8], %f3;") == 0);
  CHECK(sum("mul.f32 %f3, %f1, %f1; mov.f32 %f1, %f2; sub.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("mul.f32 %f3, %f1, %f1;\nNEXT: sub.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("setp.eq.u32 %p1, %tid, 0; @%p1 mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2;") == 0);
  CHECK(sum("setp.eq.u32 %p1, %tid, 0; mul.f32 %f3, %f1, %f1; @%p1 sub.f32 %f4, %f3, %f2;") == 0);
}

TEST_CASE("doubles and halves too") {
  // 1 + 2^-30 squared is 1 + 2^-29 + 2^-60.
  auto out = run(kernel(R"(
    .reg .f64 %d<4>;
    mov.f64 %d0, 0d3FF0000000400000; mov.f64 %d1, 0d3FF0000000800000;
    mul.f64 %d2, %d0, %d0; sub.f64 %d3, %d1, %d2;
    st.global.f64 [%out], %d3;)"),
                 1, 1, 2);
  CHECK(std::bit_cast<double>(uint64_t{out[1]} << 32 | out[0]) == -std::ldexp(1.0, -60));
  // 1 + 2^-6 squared is 1 + 2^-5 + 2^-12.
  out = run(kernel(R"(
    mov.b16 %h0, 0x3C10; mov.b16 %h1, 0x3C20; mul.f16 %h2, %h0, %h0; sub.f16 %h3, %h2, %h1;
    mov.b32 %r0, 0x3C103C10; mov.b32 %r1, 0x3C203C20; mul.f16x2 %r2, %r0, %r0; sub.f16x2 %r3, %r1, %r2;
    mov.b16 %h4, 0x3F81; mov.b16 %h5, 0x3F82; mul.bf16 %h6, %h4, %h4; sub.bf16 %h7, %h6, %h5;
    st.global.b16 [%out], %h3; st.global.b16 [%out+2], %h7; st.global.b32 [%out+4], %r3;)"),
            1, 1, 2);
  CHECK(out[0] == 0x38800C00);  // 2^-14 as bf16, 2^-12 as f16
  CHECK(out[1] == 0x8C008C00);
}

TEST_CASE("nothing is fused where the caller does not want it") {
  const std::string text =
      kernel(factors + "mul.f32 %f3, %f1, %f1; sub.f32 %f4, %f3, %f2; st.global.f32 [%out], %f4;");
  const std::string_view view = text;
  for (const bool fuses : {false, true}) {
    Machine machine(text);
    REQUIRE(machine.image != nullptr);
    CompileResult compiled = compile(std::span(&view, 1), {}, fuses);
    REQUIRE(compiled.program);
    machine.image = Image::create(compiled.program, {[](size_t, size_t) { return uint64_t{0}; }, {}});
    REQUIRE(machine.image != nullptr);
    REQUIRE(machine.run({1, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
    CHECK(*machine.at<float>(0) == (fuses ? rest : 0));
  }
}
