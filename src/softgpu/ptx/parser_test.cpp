// What the front end accepts and refuses; and that no input makes it crash.
#include <fstream>
#include <random>
#include <sstream>

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::compile_one;
using softgpu::testing::ptx_header;

namespace {
std::string entry(const std::string& body) {
  return ptx_header + ".visible .entry k() {\n" + body + "\nret;\n}\n";
}
}  // namespace

TEST_CASE("a kernel's description comes from its declaration") {
  const CompileResult r = compile_one(ptx_header + R"(
.visible .entry first(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align 16 c)
.maxntid 128, 2, 1
.minnctapersm 1
{ .shared .align 16 .b8 s[100]; .local .align 4 .b8 l[40]; .reg .b32 %r<3>; mov.u32 %r1, s; st.shared.u32 [%r1], %r1; ret; }
.entry second() .reqntid 8 { ret; }
)");
  INFO(r.log);
  REQUIRE(r.program);
  CHECK(r.ptx_version == 90);
  CHECK(r.target == 120);
  REQUIRE(r.program->kernels().size() == 2);
  const KernelInfo& k = r.program->kernels()[0];
  CHECK(k.name == "first");
  CHECK(k.parameter_bytes == 32);
  CHECK(k.parameters[1].offset == 8);
  CHECK(k.parameters[2].offset == 24);
  CHECK(k.max_threads_per_block == 256);
  CHECK(k.static_shared_bytes == 100);
  CHECK(k.local_bytes == 48);
  CHECK_FALSE(k.uses_dynamic_shared);
  CHECK(r.program->kernels()[1].required_block.x == 8);
  CHECK(r.program->find_kernel("second") == 1);
  CHECK_FALSE(r.program->find_kernel("third"));
}

TEST_CASE("debug information and pragmas are skipped") {
  const CompileResult r = compile_one(ptx_header + R"(
.file 1 "a.cu"
.section .debug_str { .b8 1, 2, 3; lbl: .b8 0 }
.visible .entry k() {
.pragma "nounroll";
.loc 1 3 5
.loc 1 3 5, function_name $L__info1, inlined_at 1 2 3
/* a comment */ ret; // another
}
)");
  INFO(r.log);
  CHECK(r.program);
}

TEST_CASE("number forms") {
  CHECK(compile_one(entry(".reg .b32 %r; .reg .f32 %f; .reg .f64 %d; mov.u32 %r, 0x1F; mov.u32 %r, 017; "
                          "mov.u32 %r, 0b101U; mov.s32 %r, -5;"
                          "mov.f32 %f, 0f3F800000; mov.f32 %f, 1.5; mov.f64 %d, 0d3FF0000000000000; mov.f64 "
                          "%d, -2.5e3; mov.u32 %r, WARP_SZ;"))
            .program);
  CHECK(compile_one(entry(".reg .f32 %f; mov.f32 %f, 0f3F80;")).status == CompileStatus::syntax_error);
}

TEST_CASE("registers live in their scope") {
  CHECK(compile_one(entry(".reg .b32 %r; { .reg .b64 %r; mov.u64 %r, 1; { mov.u64 %r, 2; } } mov.u32 %r, 1;"))
            .program);
  const CompileResult r = compile_one(entry("{ .reg .b32 %t; }\nmov.u32 %t, 1;"));
  CHECK(r.status == CompileStatus::syntax_error);
  CHECK(r.log.find("line 6") != std::string::npos);
}

TEST_CASE("what is not in the table is refused by name and line") {
  CompileResult r = compile_one(entry(".reg .b32 %r;\nfrobnicate.u32 %r, %r;"));
  CHECK(r.status == CompileStatus::unsupported_opcode);
  CHECK(r.log == "source 1, line 6: opcode 'frobnicate.u32' is not supported");
  CHECK(compile_one(entry(".reg .b32 %r; add.rz.u32 %r, %r, %r;")).status ==
        CompileStatus::unsupported_opcode);
  CHECK(compile_one(entry(".reg .b32 %r; ld.global.sideways.u32 %r, [%r];")).status ==
        CompileStatus::unsupported_opcode);
  CHECK(compile_one(entry(".reg .b32 %r; .reg .b64 %x; add.u32 %r, %r, %x;")).status ==
        CompileStatus::syntax_error);
  CHECK(compile_one(entry(".reg .b32 %r; add.u32 %r, %r;")).status == CompileStatus::syntax_error);
  CHECK(compile_one(entry("bra NOWHERE;")).status == CompileStatus::syntax_error);
  CHECK(compile_one(entry("@nothing:")).status == CompileStatus::syntax_error);
  CHECK(compile_one("").status == CompileStatus::syntax_error);
  CHECK(compile_one("\x7f"
                    "ELF")
            .status == CompileStatus::syntax_error);
}

TEST_CASE("several sources are linked") {
  const std::string main =
      ptx_header +
      ".extern .func (.param .b32 r) helper (.param .b32 a);\n.extern .global .u32 counter;\n"
      ".visible .entry k() { .reg .b32 %r; ld.global.u32 %r, [counter]; { .param .b32 a; .param .b32 r; "
      "st.param.b32 [a], %r; call (r), helper, (a); } ret; }";
  const std::string library = ptx_header +
                              ".visible .global .u32 counter;\n.visible .func (.param .b32 r) helper (.param "
                              ".b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; st.param.b32 [r], %r; ret; }";
  const std::string_view both[] = {main, library}, twice[] = {library, library};
  CHECK(compile(both).program);
  CHECK(compile(std::span(both, 1)).status == CompileStatus::unresolved_symbol);
  CHECK(compile(twice).status == CompileStatus::duplicate_symbol);
  // As real linkers do, a declaration's result is not held against the definition.
  const std::string void_library =
      ptx_header + ".visible .global .u32 counter;\n.visible .func helper (.param .b32 a) { ret; }";
  const std::string_view other[] = {main, void_library};
  CHECK(compile(other).program);
  const std::string weak =
      ptx_header + ".weak .func w() { ret; } .weak .global .u32 g; .visible .entry k() { call w; ret; }";
  const std::string strong = ptx_header + ".visible .func w() { trap; } .visible .global .u32 g = 5;";
  const std::string_view mixed[] = {weak, strong}, weak_twice[] = {weak, strong, strong};
  CHECK(compile(mixed).program);
  CHECK(compile(weak_twice).status == CompileStatus::duplicate_symbol);
}

TEST_CASE("damaged sources give errors, never crashes") {
  std::vector<std::string> seeds;
  seeds.push_back(ptx_header + R"(
.extern .shared .align 16 .b8 dyn[];
.global .align 4 .u32 values[3] = {1, 2, 0xFF(values)};
.func (.param .b32 r) f(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; st.param.b32 [r], %x; ret; }
.visible .entry k(.param .u64 p, .param .align 8 .b8 q[24]) .maxntid 64 {
  .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %x<5>; .reg .f32 %f<3>; .local .align 8 .b8 l[16];
  ld.param.u64 %x1, [p]; ld.param.v2.u32 {%r1, %r2}, [q+8]; setp.lt.and.s32 %p1|%p2, %r1, -5, !%p0;
@!%p1 bra L1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), f, (a); ld.param.b32 %r3, [b]; }
L1: mov.b64 %x2, {%r1, %r2}; fma.rn.f32 %f1, %f2, 0f3F800000, 0f00000000; shfl.sync.idx.b32 %r4|%p3, %r1, 0, 31, -1;
  atom.global.cas.b32 %r5, [%x1+4], 0, 1; st.shared.v2.b32 [dyn+8], {%r1, _}; cvt.rni.s32.f32 %r6, %f1; bar.sync 0;
t: .branchtargets L1, L2; brx.idx %r1, t;
L2: ret; })");
  std::mt19937 random(20240607);
  const std::string alphabet = "%.,;[]{}()<>!@_|+-0123456789abcdefprstux \n\"/*:=~&^";
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = seeds[0];
    const int edits = 1 + static_cast<int>(random() % 4);
    for (int e = 0; e < edits; ++e) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 12);
          break;
        case 2:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        default:
          text.resize(at);
          break;
      }
      if (text.empty()) text = ".";
    }
    const CompileResult r = compile_one(text);
    CHECK((r.program != nullptr) == (r.status == CompileStatus::ok));
    CHECK((r.program != nullptr) == r.log.empty());
    accepted += r.program != nullptr;
  }
  CHECK(accepted > 0);
  CHECK(accepted < 4000);
}

TEST_CASE("wmma has only the combinations of types that the manual names") {
  const auto status = [](const std::string& statement) {
    return compile_one(entry(".reg .b32 %r<8>; .reg .b64 %p;\n" + statement)).status;
  };
  const std::string two = "{%r0,%r1}", four = "{%r0,%r1,%r2,%r3}",
                    eight = "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}";
  const std::string multiply = "wmma.mma.sync.aligned.row.col.m16n16k16.";
  const CompileStatus good = CompileStatus::ok, unknown = CompileStatus::unsupported_opcode;
  CHECK(status(multiply + "f32.f16 " + eight + "," + eight + "," + eight + "," + four + ";") == good);
  CHECK(status(multiply + "s32.s8.s8.s32 " + eight + "," + two + "," + two + "," + eight + ";") == good);
  for (const char* const types :
       {"f64.f64", "f64.f32", "s32.f16", "f32.s32", "bf16.f32", "s32.s8.u8.s32", "s32.s8.s8.f32",
        "f32.s8.s8.s32", "f16.bf16.bf16.f32", "f32.f32.f32.f32", "s32.s32.s32.s32"}) {
    CAPTURE(types);
    CHECK(status(multiply + types + " " + eight + "," + eight + "," + eight + "," + eight + ";") == unknown);
  }
  CHECK(status("wmma.load.c.sync.aligned.row.m16n16k16.global.s32 " + eight + ",[%p];") == good);
  CHECK(status("wmma.load.c.sync.aligned.row.m16n16k16.global.s8 " + two + ",[%p];") == unknown);
  CHECK(status("wmma.load.a.sync.aligned.row.m16n16k16.global.f32 " + eight + ",[%p];") == unknown);
  CHECK(status("wmma.load.b.sync.aligned.row.m16n16k16.global.s32 " + eight + ",[%p];") == unknown);
  CHECK(status("wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%p]," + four + ";") == good);
  CHECK(status("wmma.store.d.sync.aligned.row.m16n16k16.global.u8 [%p]," + two + ";") == unknown);
}

TEST_CASE("a kernel cannot be called") {
  const std::string other = ".visible .entry other(.param .u64 p) { ret; }\n",
                    another = ".alias renamed, other;\n";
  const auto status = [&](const std::string& name) {
    return compile_one(ptx_header + other + another + ".visible .entry k() { .param .u64 a; call " + name +
                       ", (a); ret; }\n")
        .status;
  };
  CHECK(status("other") == CompileStatus::syntax_error);
  CHECK(status("renamed") == CompileStatus::syntax_error);
}

TEST_CASE("registers as arguments count as local memory, which has a limit") {
  const auto status = [&](int calls) {
    std::string body = ".reg .b32 %r; mov.u32 %r, 1;\n";
    for (int i = 0; i < calls; ++i) body += "call f, (%r);\n";
    return compile_one(ptx_header + ".func f(.param .b32 a) { ret; }\n.visible .entry k() {\n" + body +
                       "ret;\n}\n")
        .status;
  };
  CHECK(status(100) == CompileStatus::ok);
  CHECK(status(40000) == CompileStatus::syntax_error);
}

TEST_CASE("only variables have elements") {
  const auto log = [](const std::string& text) { return compile_one(text).log; };
  CHECK(log(entry(".reg .b64 %x; mov.u64 %x, k[1];")).find("'k' is no variable") != std::string::npos);
  CHECK(log(entry(".reg .b64 %x; .shared .b32 s[4]; mov.u64 %x, s[1;")).find("']' expected") !=
        std::string::npos);
  CHECK(log(entry(".reg .b64 %x; .shared .b32 s[4]; mov.u64 %x, s[%x];")).find("found '%x'") !=
        std::string::npos);
}
