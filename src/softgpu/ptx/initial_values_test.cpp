// Where the values of an initialiser go: as in C, a row that is shorter than its array has is filled with
// zeros.
#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::compile_one;
using softgpu::testing::kernel;
using softgpu::testing::run;

namespace {

// The first words of the variable `v`.
std::vector<uint32_t> words_of(const std::string& declaration, size_t words) {
  std::string body = "mov.u64 %x1, v;\n";
  for (size_t i = 0; i < words; ++i) {
    const std::string at = std::to_string(4 * i);
    body += "ld.global.u32 %r1, [%x1+" + at + "]; st.global.u32 [%out+" + at + "], %r1;\n";
  }
  return run(kernel(body, declaration + "\n"), 1, 1, words);
}

using Words = std::vector<uint32_t>;

}  // namespace

TEST_CASE("rows of initial values are filled with zeros") {
  CHECK(words_of(".global .u32 v[2][2] = {{1,2},{3}};", 4) == Words{1, 2, 3, 0});
  CHECK(words_of(".global .u32 v[3][2] = {{1},{2}};", 6) == Words{1, 0, 2, 0, 0, 0});
  CHECK(words_of(".global .u32 v[2][3] = {{},{4,5}};", 6) == Words{0, 0, 0, 4, 5, 0});
  CHECK(words_of(".global .u32 v[2][2][2] = {{{1},{2}},{{3,4}}};", 8) == Words{1, 0, 2, 0, 3, 4, 0, 0});
  CHECK(words_of(".global .v4 .u32 v[2] = {{1,2},{3}};", 8) == Words{1, 2, 0, 0, 3, 0, 0, 0});
  CHECK(words_of(".global .u16 v[2][2] = {{1},{2}};", 2) == Words{1, 2});
}

TEST_CASE("the braces of rows may be left out") {
  CHECK(words_of(".global .u32 v[2][2] = {1,2,3};", 4) == Words{1, 2, 3, 0});
  CHECK(words_of(".global .u32 v[2][2] = {1,2,{3}};", 4) == Words{1, 2, 3, 0});
  CHECK(words_of(".global .u32 v[2] = {{1},{2}};", 2) == Words{1, 2});
  CHECK(words_of(".global .u32 v = {7};", 1) == Words{7});
}

TEST_CASE("rows count for an array without a size") {
  const auto size_of = [](const std::string& declaration) {
    const CompileResult r = compile_one(kernel("", declaration));
    INFO(r.log);
    REQUIRE(r.program);
    return r.program->globals().front().size;
  };
  CHECK(words_of(".global .u32 v[][2] = {{1},{2}}; .global .u32 w = 9;", 4) == Words{1, 0, 2, 0});
  CHECK(size_of(".visible .global .u32 v[][2] = {{1},{2}};") == 16);
  CHECK(size_of(".visible .global .u32 v[][4] = {1,2,3,4,5};") == 32);
  CHECK(size_of(".visible .global .u32 v[][4] = {{},{},{}};") == 48);
}

TEST_CASE("initial values that have no place are refused") {
  for (const char* const declaration :
       {"v[2][2] = {{1,2,3},{4}}", "v[2][2] = {{1},{2},{3}}", "v[2][2] = {1,{2}}", "v[2] = {1,2,3}",
        "v[0] = {1}", "v[2] = {{1,2}}", "v[2][0] = {{1}}", "v[2][0] = {{},{}}", "v[][0] = {{}}"}) {
    CAPTURE(declaration);
    const CompileResult r = compile_one(kernel("", std::string(".global .u32 ") + declaration + ";\n"));
    CHECK(r.status == CompileStatus::syntax_error);
  }
}

TEST_CASE("initial values far apart do not take the host's memory") {
  const CompileResult r = compile_one(kernel("", ".global .b8 v[2][549755813888] = {{1},{2}};\n"));
  CHECK(r.status == CompileStatus::syntax_error);
  CHECK(r.log.find("the initial values of global variables are too large") != std::string::npos);
}
