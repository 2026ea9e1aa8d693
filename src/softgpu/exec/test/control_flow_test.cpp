// How lanes part and meet: branches, loops, calls.
#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::fault_of;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::run;

TEST_CASE("lanes that loop for different times meet again") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    setp.ge.u32 %p1, %r1, %tid;
    @%p1 bra DONE;
    add.u32 %r2, %r2, %r1;
    add.u32 %r1, %r1, 1;
    bra LOOP;
  DONE:
    activemask.b32 %r3;
    popc.b32 %r3, %r3;
    shl.b32 %r3, %r3, 16;
    or.b32 %r2, %r2, %r3;
    st.global.u32 [%slot], %r2;)"),
                       1, 50, 50);
  for (uint32_t t = 0; t < 50; ++t) CHECK(out[t] == (t * (t - 1) / 2 | (t < 32 ? 32u : 18u) << 16));
}

TEST_CASE("an inner branch and an outer branch reconverge, predicated code leaves other lanes alone") {
  const auto out = run(kernel(R"(
    mov.u32 %r1, 7;
    and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0;
    and.b32 %r2, %tid, 2; setp.eq.u32 %p2, %r2, 0;
    @%p1 bra EVEN;
    add.u32 %r1, %r1, 100;
    @!%p2 add.u32 %r1, %r1, 1000;
    bra.uni JOIN;
  EVEN:
    @%p2 bra JOIN;
    mul.lo.u32 %r1, %r1, 2;
  JOIN:
    st.global.u32 [%slot], %r1;)"),
                       1, 32, 32);
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(out[t] == (t % 2 == 0 ? (t & 2 ? 14u : 7u) : 107u + (t & 2 ? 1000u : 0u)));
  }
}

TEST_CASE("functions: arguments, results, recursion, pointers to functions") {
  const std::string functions = R"(
.func (.param .b32 result) square(.param .b32 value)
{ .reg .b32 %a; ld.param.b32 %a, [value]; mul.lo.s32 %a, %a, %a; st.param.b32 [result], %a; ret; }
.func (.param .b32 result) sum_to(.param .b32 value)
{ .reg .b32 %a, %b; .reg .pred %p;
  ld.param.b32 %a, [value]; setp.eq.s32 %p, %a, 0; mov.u32 %b, 0; @%p bra OUT;
  { .param .b32 arg; .param .b32 back; sub.s32 %b, %a, 1; st.param.b32 [arg], %b; call.uni (back), sum_to, (arg); ld.param.b32 %b, [back]; }
  add.s32 %b, %b, %a;
OUT: st.param.b32 [result], %b; ret; }
.global .align 8 .u64 table[2] = {square, sum_to};
)";
  const auto out = run(kernel(R"(
    and.b32 %r1, %tid, 1; mul.wide.u32 %x1, %r1, 8; mov.u64 %x2, table; add.s64 %x2, %x2, %x1; ld.global.u64 %x3, [%x2];
    { .param .b32 arg; .param .b32 back; st.param.b32 [arg+0], %tid;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (back), %x3, (arg), proto;
      ld.param.b32 %r2, [back+0]; }
    st.global.u32 [%slot], %r2;)",
                              functions),
                       1, 40, 40);
  for (uint32_t t = 0; t < 40; ++t) CHECK(out[t] == (t % 2 == 0 ? t * t : t * (t + 1) / 2));
}

TEST_CASE("endless recursion is a stack overflow, a call to nowhere an illegal instruction") {
  const std::string f = ".func f() { call f; ret; }\n";
  CHECK(fault_of(kernel("call f;", f)).fault == Fault::stack_overflow);
  CHECK(fault_of(kernel("mov.u64 %x1, 12345; proto: .callprototype _ (); call %x1, (), proto;")).fault ==
        Fault::illegal_instruction);
}

TEST_CASE("an indirect call lays its arguments out as the prototype says") {
  const std::string function = R"(
.func (.param .b64 result) mixed(.param .b8 small, .param .b64 large, .param .b32 last)
{ .reg .b32 %a, %b; .reg .b64 %c, %d;
  ld.param.u8 %a, [small]; ld.param.b64 %c, [large]; ld.param.b32 %b, [last];
  mad.lo.u32 %a, %a, 100, %b; cvt.u64.u32 %d, %a; add.u64 %c, %c, %d; st.param.b64 [result], %c; ret; }
)";
  // Registers and constants as arguments, and a variable that is larger than the parameter.
  const auto out = run(kernel(R"(
    mov.u64 %x1, mixed; mov.u64 %x2, 0x500000000;
    { .param .align 4 .b8 small[4]; .param .b64 back; mov.u32 %r1, 0xff07; st.param.b32 [small], %r1;
      proto: .callprototype (.param .b64 _) _ (.param .b8 _, .param .b64 _, .param .b32 _);
      call (back), %x1, (small, %x2, %tid), proto; ld.param.b64 %x3, [back];
      targets: .calltargets mixed;
      call (%x4), %x1, (2, 0x700000000, 3), targets; }
    st.global.u64 [%out], %x3; st.global.u64 [%out+8], %x4;)",
                              function),
                       1, 1, 4);
  CHECK(out == std::vector<uint32_t>{700, 5, 203, 7});
}

TEST_CASE("a call through a pointer reaches only what its prototype fits") {
  const std::string functions =
      ".func one(.param .b32 a) { ret; }\n"
      ".func (.param .align 16 .b8 r[256]) wide(.param .align 16 .b8 a[256]) { ret; }\n";
  const auto call = [&](const char* function, const char* bytes) {
    return fault_of(kernel("mov.u64 %x1, " + std::string(function) + "; { .param .align 16 .b8 a[" + bytes +
                               "]; .param .align 16 .b8 r[" + bytes +
                               "]; proto: .callprototype (.param .align 16 .b8 _[" + bytes +
                               "]) _ (.param .align 16 .b8 _[" + bytes + "]); call (r), %x1, (a), proto; }",
                           functions))
        .fault;
  };
  CHECK(call("wide", "256") == Fault::none);
  CHECK(call("one", "256") == Fault::illegal_instruction);
  CHECK(softgpu::testing::compile_one(kernel("call %x1, ();")).status == CompileStatus::syntax_error);
}

TEST_CASE("a function whose address nobody has taken cannot be called by a number") {
  // Next to one that is known; it has shared memory, for which this kernel has no place.
  const std::string functions = R"(
.shared .align 4 .b32 elsewhere;
.func known() { ret; }
.func unknown() { .reg .b32 %a; ld.shared.b32 %a, [elsewhere]; st.shared.b32 [elsewhere], %a; ret; }
.visible .entry other() { call unknown; ret; }
)";
  const auto call = [&](const char* step) {
    Machine machine(kernel("mov.u64 %x1, known; add.u64 %x1, %x1, " + std::string(step) +
                               "; proto: .callprototype _ (); call %x1, (), proto;",
                           functions));
    INFO(machine.compiled.log);
    REQUIRE(machine.image != nullptr);
    return machine
        .run({1, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0)),
             *machine.compiled.program->find_kernel("k"))
        .fault;
  };
  CHECK(call("0") == Fault::none);
  CHECK(call("1") == Fault::illegal_instruction);
}

TEST_CASE("three-dimensional blocks and grids number their threads as CUDA does") {
  Machine machine(kernel(R"(
    mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;
    mov.u32 %r5, %ntid.x; mov.u32 %r6, %ntid.y; mad.lo.s32 %r7, %r2, %r6, %r1; mad.lo.s32 %r7, %r7, %r5, %tid;
    mov.u32 %r8, %warpid; shl.b32 %r8, %r8, 5; mov.u32 %r9, %laneid; add.u32 %r8, %r8, %r9; sub.u32 %r10, %r7, %r8;
    mad.lo.s32 %r11, %r4, 2, %r3; mul.lo.s32 %r11, %r11, 24; add.s32 %r11, %r11, %r7; mul.wide.s32 %x1, %r11, 4; add.s64 %x1, %x1, %out;
    add.u32 %r12, %r11, %r10; st.global.u32 [%x1], %r12;)"));
  CHECK(machine.run({1, 2, 3}, {2, 3, 4}, Parameters().add(machine.address(0))).fault == Fault::none);
  for (uint32_t i = 0; i < 144; ++i) CHECK(*machine.at<uint32_t>(4 * i) == i);
}
