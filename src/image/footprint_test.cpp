// What images take of a device's memory is added up from what they say, and nothing in them leads astray.
#include "image/footprint.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "image/test_cubin.h"
#include "image/test_fatbin.h"

using namespace gpupool::image;

namespace {

constexpr const char* ptx_head = ".version 8.4\n.target sm_75\n.address_size 64\n";

std::uint64_t bytes_of(const std::string& text) {
  return ptx_footprint(ptx_head + text).bytes;
}

}  // namespace

TEST_CASE("variables of PTX count with their types, vectors and dimensions") {
  CHECK(bytes_of("") == 0);
  CHECK(bytes_of(".visible .global .align 4 .u32 calls = 7;") == 4);
  CHECK(bytes_of(".global .align 16 .b8 big[1073741824];") == 1u << 30);
  CHECK(bytes_of(".const .align 8 .f64 table[3][5];") == 120);
  CHECK(bytes_of(".global .v4 .f32 colour[2];") == 32);
  CHECK(bytes_of(".global .b8 hex[0x100];") == 256);
  CHECK(bytes_of(".global .f16 a, b[3], c;") == 10);
  CHECK(bytes_of(".global .u32 given[] = {1, 2, 3};") == 12);
  CHECK(bytes_of(".global .u32 nested[2][2] = {{1, 2}, {3, 4}}; .global .u8 last;") == 17);
  CHECK(bytes_of(".global .texref picture;") == 8);
  CHECK(bytes_of(".global .b128 wide;") == 16);
  CHECK(bytes_of(".global .u32 a = 1, b = 2, c[2] = {3, 4};") == 16);
  CHECK(bytes_of(".section .debug_str { info: .b8 1, 2, 3 }\n.global .u32 after;") == 4);
}

TEST_CASE("what takes no memory of a module's does not count") {
  CHECK(bytes_of(".extern .global .b8 elsewhere[1000];") == 0);
  CHECK(bytes_of(".shared .align 4 .b8 tile[1000];") == 0);
  CHECK(
      bytes_of(
          "// .global .b8 comment[1000];\n/* .global .b8 comment[1000]; */ .file 1 \"a.global .b8 x[9];\"") ==
      0);
  CHECK(bytes_of(".visible .entry k(.param .u64 p) { .local .b8 depot[64]; ld.global.u32 %r1, [%rd1]; ret; }"
                 ".global .u32 after;") == 4);
  CHECK(bytes_of(".func (.param .b32 r) f(.param .b64 .ptr .global .align 4 p);") == 0);
}

TEST_CASE("sizes that no device has are bounded, and the total too") {
  const std::uint64_t most = std::uint64_t{1} << 50;
  CHECK(bytes_of(".global .b64 a[18446744073709551615][18446744073709551615];") == most);
  CHECK(bytes_of(".global .b64 a[99999999999999999999999];.global .b64 b[99999999999999999999999];") == most);
}

TEST_CASE("managed variables are found") {
  CHECK(ptx_footprint(".global .attribute(.managed) .align 4 .u32 both;").managed_memory);
  CHECK(bytes_of(".global .attribute(.managed) .align 4 .u32 both;") == 4);
  CHECK_FALSE(ptx_footprint(".global .u32 managed;").managed_memory);
}

TEST_CASE("machine code counts with its code, constants and variables, not with what is beside them") {
  const std::string cubin = TestCubin::make(80);
  CHECK(footprint(std::as_bytes(std::span(cubin)), 80).bytes == 64 + 32 + 4 + 64 + 16);
}

TEST_CASE("what cannot be read counts with its own length") {
  std::string broken = TestCubin::make(80);
  broken.resize(80);
  CHECK(footprint(std::as_bytes(std::span(broken)), 80).bytes == 80);
}

TEST_CASE("no text of random words breaks the counting") {
  std::mt19937 random(7);
  const char* const words[] = {".global", ".const", ".b8", ".u32", "[",  "]",      "{",          "}",
                               "=",       ",",      ";",   "x",    "77", ".entry", "(",          ")",
                               "\"",      "//",     "/*",  "*/",   "\n", ".v4",    ".attribute", ".managed"};
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::size_t n = random() % 40; n > 0; --n)
      text += std::string(words[random() % std::size(words)]) + " ";
    CHECK(ptx_footprint(text).bytes <= std::uint64_t{1} << 50);
  }
}
