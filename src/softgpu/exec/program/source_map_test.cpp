// `.loc` and `.file` as NVRTC, LLVM and Triton write them, looked up by the line of an instruction.
#include "softgpu/exec/program/source_map.h"

#include <algorithm>

#include "doctest/doctest.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::compile_one;
using softgpu::testing::ptx_header;

namespace {

const std::string program_text = ptx_header + R"(.visible .entry k(.param .u64 p)
{
.reg .b64 %x; .reg .b32 %r;
ld.param.u64 %x, [p];
.loc 1 10 3
mov.u32 %r, 1;
add.u32 %r, %r, 1;
.loc 2 70 5, function_name $L__info_string0, inlined_at 1 10 3
add.u32 %r, %r, 2;
.loc 2 80 1, function_name $L__info_string1, inlined_at 2 70 5
add.u32 %r, %r, 3;
.loc 1 12
add.u32 %r, %r, 4;
.loc 1 0 0
st.global.u32 [%x], %r;
ret;
}
.visible .entry without() { ret; }
.file 1 "/home/ada/saxpy.py"
.file 2 "/usr/include/helper.h", 1700000000, 512
.section .debug_str
{
$L__info_string0: // string offset=0
.b8 115,113,117,97,114,101,0
$L__info_string1:
.b8 97
.b8 98
.b8 0
}
)";

// The chain of the instruction that the PTX has on the line after `marker`.
std::vector<SourcePlace> places_after(const CompileResult& compiled, const std::string& marker) {
  const size_t at = program_text.find(marker);
  const auto line = static_cast<uint32_t>(
      2 + std::count(program_text.begin(), program_text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  for (const Function& function : compiled.program->parts().functions) {
    for (const Instruction& instruction : function.code) {
      if (instruction.line == line) return source_places(compiled.program->parts(), instruction);
    }
  }
  return {};
}

}  // namespace

TEST_CASE("an instruction knows its file, line and column") {
  const CompileResult compiled = compile_one(program_text);
  INFO(compiled.log);
  REQUIRE(compiled.program);
  const auto plain = places_after(compiled, ".loc 1 10 3");
  REQUIRE(plain.size() == 1);
  CHECK(plain[0].file == "/home/ada/saxpy.py");
  CHECK(plain[0].line == 10);
  CHECK(plain[0].column == 3);
  CHECK(plain[0].function.empty());
  CHECK(places_after(compiled, "mov.u32 %r, 1;").at(0).line == 10);  // until the next .loc
}

TEST_CASE("inlined code has the chain of its calls, innermost first") {
  const CompileResult compiled = compile_one(program_text);
  REQUIRE(compiled.program);
  const auto chain = places_after(compiled, ".loc 2 80 1");
  REQUIRE(chain.size() == 3);
  CHECK(chain[0].file == "/usr/include/helper.h");
  CHECK(chain[0].line == 80);
  CHECK(chain[0].function == "ab");
  CHECK(chain[1].line == 70);
  CHECK(chain[1].function == "square");
  CHECK(chain[2].file == "/home/ada/saxpy.py");
  CHECK(chain[2].line == 10);
}

TEST_CASE("what the PTX does not say is empty, and a malformed directive is passed over") {
  const CompileResult compiled = compile_one(program_text);
  REQUIRE(compiled.program);
  CHECK(places_after(compiled, ".reg .b64").empty());             // before the first .loc
  CHECK(places_after(compiled, ".loc 1 12\n").at(0).line == 80);  // no column: not a .loc
  CHECK(places_after(compiled, ".loc 1 0 0").at(0).line == 0);    // a compiler's own code
  CHECK(source_places(compiled.program->parts(), Instruction{}).empty());
  const Function& last = compiled.program->parts().functions.back();
  CHECK(last.name == "without");
  CHECK(source_places(compiled.program->parts(), last.code[0]).empty());  // the end of k ends its locations
}

TEST_CASE("two sources keep their own maps") {
  const std::string other =
      ptx_header + ".visible .entry o()\n{\n.loc 1 5 1\nret;\n}\n.file 1 \"other.cu\"\n";
  const std::string_view both[] = {program_text, other};
  const CompileResult compiled = compile(both);
  REQUIRE(compiled.program);
  const Function& last = compiled.program->parts().functions.back();
  REQUIRE(last.name == "o");
  CHECK(source_places(compiled.program->parts(), last.code[0]).at(0).file == "other.cu");
}
