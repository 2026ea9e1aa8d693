#include "image/variables.h"

#include <doctest/doctest.h>

#include "image/test_cubin.h"
#include "image/test_fatbin.h"

using namespace gpupool::image;
using Names = std::vector<std::string>;

TEST_CASE("variables of PTX: every linkage, with and without initial values") {
  CHECK(ptx_variables(R"(
//
// .global .u32 in_a_comment;
.version 8.0
.target sm_75
.address_size 64
	// .globl	kernel
.visible .global .align 4 .u32 factor = 3;
.global .align 4 .b8 table[16] = {1, 2, 3, 4};
/* .global .u32 in_another; */
.const .align 4 .f32 weights[2][3];
.common .global .align 8 .u64 _ZN08NumbaEnv8;
.global .v4 .f32 vector, second;
.extern .global .u32 elsewhere;
.global .texref texture;
.visible .func (.param .b32 r) helper(.param .b64 p)
{
  .reg .b32 %r<4>;
  ld.global.u32 %r1, [factor];
  { .reg .b32 t; }
  ret;
}
.extern .shared .align 16 .b8 shared[];
.visible .entry kernel(.param .u64 out) .maxntid 128, 1, 1
{
  ld.global.u32 %r1, [table];
  ret;
}
.global .u32 last;
)") == Names{"factor", "table", "weights", "_ZN08NumbaEnv8", "vector", "second", "last"});
}

TEST_CASE("several variables with values, and sections between them") {
  CHECK(ptx_variables(".global .u32 a = 1, b = 2, c[2] = {3, 4}, d;") == Names{"a", "b", "c", "d"});
  CHECK(ptx_variables(".section .debug_str { info: .b8 1, 2, 3 }\n.global .u32 after;") == Names{"after"});
}

TEST_CASE("names with braces in strings, and text that ends in the middle") {
  CHECK(ptx_variables(".file 1 \"a{b.cu\"\n.global .u32 a;\n.global .u32 b = ") == Names{"a"});
  CHECK(ptx_variables("{{{").empty());
  CHECK(ptx_variables("").empty());
}

TEST_CASE("what is no image has no known variables") {
  CHECK(!variable_names({}));
  const std::string text = "hello";
  CHECK(!variable_names(std::as_bytes(std::span(text))));
  const std::string ptx = ".version 8.0\n.target sm_75\n.global .u32 a;\n";
  CHECK(variable_names(std::as_bytes(std::span(ptx))) == Names{"a"});
}

TEST_CASE("an image whose kernels allocate is known") {
  const auto uses = [](const std::string& text) { return uses_device_heap(std::as_bytes(std::span(text))); };
  const std::string head = ".version 8.0\n.target sm_75\n";
  CHECK(uses(head + ".extern .func (.param .b64 r) malloc\n(\n.param .b64 size\n)\n;\n"));
  CHECK(!uses(head + "// malloc\n.global .u32 malloc_count;\n.visible .entry k() { ret; }\n"));
  CHECK(!uses(head));
  CHECK(uses(fatbin(entry(1, 75, head + ".extern .func (.param .b64 r) malloc(.param .b64 s);\n"))));
  CHECK(!uses(fatbin(entry(1, 75, head))));
}

TEST_CASE("an image whose variables begin as addresses is known") {
  const auto holds = [](const std::string& text) { return holds_addresses(std::as_bytes(std::span(text))); };
  const std::string head = ".version 8.0\n.target sm_75\n.visible .func f() { ret; }\n.global .u32 x;\n";
  for (const char* const value :
       {"generic(x)", "x", "generic(x)+8", "{f, f}", "{0, {0, f}}", "0xff(generic(x))"}) {
    CAPTURE(value);
    CHECK(holds(head + ".global .u64 p[2] = " + value + ";\n"));
    CHECK(holds(fatbin(entry(1, 75, head + ".const .u64 p = " + value + ";\n"))));
  }
  for (const char* const value : {"0f3F800000", "{1, 2}", "-1", "0x10", "1e10"}) {
    CAPTURE(value);
    CHECK_FALSE(holds(head + ".global .f32 p[2] = " + value + ";\n.global .u32 last;\n"));
  }
  CHECK_FALSE(holds(head));
  CHECK_FALSE(holds(head + ".global .u32 lanes = WARP_SZ;\n"));
  CHECK_FALSE(holds(head + ".global .samplerref s = { addr_mode_0 = wrap, filter_mode = linear };\n"));
  CHECK_FALSE(holds(fatbin(entry(1, 75, head))));
  CHECK_FALSE(holds(TestCubin::make(80)));
  CHECK(holds(TestCubin::make(80, std::string(24, '\1'))));
}
