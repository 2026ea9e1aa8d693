// How launches end, and what they say: output, assertions, faults, refusals, cancelling.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::fault_of;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;

TEST_CASE("printf, assert, heap") {
  const std::string data =
      ".global .align 1 .b8 format[20] = {37, 100, 58, 37, 46, 50, 102, 58, 37, 115, 10, 0};\n"
      ".global .align 1 .b8 word[4] = {97, 98, 99, 0};\n"
      ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
      ".extern .func (.param .b64 r) malloc (.param .b64 a);\n"
      ".extern .func free (.param .b64 a);\n"
      ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 "
      "e);\n";
  Machine machine(kernel(R"(
    .local .align 8 .b8 args[24];
    mov.u64 %x1, args; cvta.local.u64 %x1, %x1; st.u32 [%x1], %tid; mov.b64 %x2, 0d3FF8000000000000; st.u64 [%x1+8], %x2;
    mov.u64 %x3, word; cvta.global.u64 %x3, %x3; st.u64 [%x1+16], %x3; mov.u64 %x4, format; cvta.global.u64 %x4, %x4;
    { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %x4; st.param.b64 [b], %x1; call.uni (r), vprintf, (a, b); })",
                         data),
                  1);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  CHECK(machine.run({1, 1, 1}, {2, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
  CHECK(machine.printed == "0:1.50:abc\n1:1.50:abc\n");
  const LaunchResult failed = fault_of(kernel(R"(
    setp.ne.u32 %p1, %tid, 7; @%p1 exit; mov.u64 %x1, word; mov.u32 %r1, 12;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
      st.param.b64 [a], %x1; st.param.b64 [b], %x1; st.param.b32 [c], %r1; st.param.b64 [d], %x1; st.param.b64 [e], 1;
      call.uni __assertfail, (a, b, c, d, e); })",
                                              data));
  CHECK(failed.fault == Fault::assert_failed);
  CHECK(failed.detail.find("abc:12: abc: assertion `abc` failed") != std::string::npos);
  CHECK(failed.detail.find("thread (7, 0, 0)") != std::string::npos);
}

TEST_CASE("faults name the address, the kernel and the thread") {
  LaunchResult r = fault_of(kernel("mov.u64 %x1, 64; ld.global.u32 %r1, [%x1]; st.global.u32 [%slot], %r1;"));
  CHECK(r.fault == Fault::illegal_address);
  CHECK(r.detail.find("0x40 (kernel k, block (0, 0, 0), thread (0, 0, 0)") != std::string::npos);
  r =
      fault_of(kernel("setp.ne.u32 %p1, %tid, 9; add.s64 %x1, %slot, 1; @%p1 mov.u64 %x1, %slot; "
                      "st.global.u32 [%x1], %tid;"));
  CHECK(r.fault == Fault::misaligned_address);
  CHECK(r.detail.find("thread (9, 0, 0)") != std::string::npos);
  CHECK(fault_of(kernel(".shared .b32 s; st.shared.u32 [s+4], %tid;")).fault == Fault::illegal_address);
  CHECK(fault_of(kernel(".local .b32 l; mov.u64 %x1, 4096; ld.local.u32 %r1, [%x1]; st.local.u32 [l], %r1;"))
            .fault == Fault::illegal_address);
  CHECK(fault_of(kernel("trap;")).fault == Fault::trap);
  CHECK(fault_of(kernel("brkpt;")).fault == Fault::illegal_instruction);
  CHECK(
      fault_of(kernel("setp.eq.u32 %p1, %tid, 0; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B:")).fault ==
      Fault::timeout);
}

TEST_CASE("memory that the driver has unmapped inside the arena faults instead of ending the process") {
  Machine machine(kernel("st.global.u32 [%slot+8192], %tid;"));
  REQUIRE(machine.image != nullptr);
  REQUIRE(mprotect(machine.arena + 8192, 4096, PROT_NONE) == 0);
  for (int i = 0; i < 3; ++i) {
    const LaunchResult r = machine.run({4, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0)));
    CHECK(r.fault == Fault::illegal_address);
    CHECK(r.detail.find("kernel k") != std::string::npos);
  }
  mprotect(machine.arena + 8192, 4096, PROT_READ | PROT_WRITE);
  CHECK(machine.run({4, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0))).fault == Fault::none);
}

TEST_CASE("a 128-bit atomic operation on memory that may only be read faults, and the next one goes on") {
  Machine machine(kernel(
      ".reg .b128 %q; mov.u64 %x1, 1; mov.b128 %q, {%x1, %x1}; atom.global.exch.b128 %q, [%out+8192], %q;"));
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  const auto fault = [&] {
    return machine.run({1, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))).fault;
  };
  REQUIRE(mprotect(machine.arena + 8192, 4096, PROT_READ) == 0);
  CHECK(fault() == Fault::illegal_address);
  mprotect(machine.arena + 8192, 4096, PROT_READ | PROT_WRITE);
  CHECK(fault() == Fault::none);
  CHECK(*machine.at<uint64_t>(8192) == 1);
}

TEST_CASE("launches that cannot be are refused") {
  Machine machine(kernel("st.global.u32 [%slot], %gid;"));
  CHECK(machine.run({1, 1, 1}, {1025, 1, 1}, Parameters().add(machine.address(0))).fault ==
        Fault::launch_out_of_resources);
  CHECK(machine.run({0, 1, 1}, {1, 1, 1}, Parameters().add(machine.address(0))).fault ==
        Fault::launch_out_of_resources);
  CHECK(machine.run({1, 1, 1}, {1, 1, 1}, Parameters()).fault == Fault::launch_out_of_resources);
}

TEST_CASE("an endless kernel can be cancelled") {
  Machine machine(kernel("LOOP: bra LOOP;"));
  std::atomic<bool> cancel{false};
  Launch launch;
  launch.image = machine.image.get();
  const Parameters parameters = Parameters().add(machine.address(0));
  launch.parameters = parameters.bytes();
  launch.cancel = &cancel;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancel = true;
  });
  CHECK(machine.executor.run(launch, {}, {}).fault == Fault::timeout);
  canceller.join();
}

TEST_CASE("functions that call each other for very long can be stopped") {
  // No branch goes back: 2^60 calls, none of them deeper than 60.
  Machine machine(kernel("{ .param .b32 a; st.param.b32 [a], 60; call down, (a); }",
                         ".func down(.param .b32 n)\n{ .reg .b32 %a; .reg .pred %p; ld.param.b32 %a, [n]; "
                         "setp.eq.u32 %p, %a, 0; @%p bra END;\n"
                         "sub.u32 %a, %a, 1; { .param .b32 m; st.param.b32 [m], %a; call down, (m); call "
                         "down, (m); }\nEND: ret; }\n"));
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  machine.time_limit = std::chrono::milliseconds(50);
  const LaunchResult result = machine.run({1, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0)));
  CHECK(result.fault == Fault::timeout);
  CHECK(result.timed_out);
}
