// barrier.cluster: threads arrive in one step and wait in another.
#include <chrono>

#include "softgpu/exec/test/test_kernel.h"

using namespace softgpu;
using softgpu::testing::kernel;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::run;

TEST_CASE("a thread that has arrived at the cluster's barrier holds up nobody") {
  Machine machine(kernel(R"(
    .shared .align 4 .b32 flag;
    setp.lt.u32 %p1, %tid, 32;
    @!%p1 bra SECOND;
    st.shared.u32 [flag], 0;
    barrier.cluster.arrive.release.aligned;
  AGAIN:
    ld.volatile.shared.u32 %r1, [flag]; setp.eq.u32 %p2, %r1, 0; @%p2 bra AGAIN;
    barrier.cluster.wait.acquire.aligned;
    bra DONE;
  SECOND:
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.u32 %r1, 7;
    st.volatile.shared.u32 [flag], %r1;
  DONE:
    st.global.u32 [%slot], %r1;)"));
  REQUIRE(machine.image != nullptr);
  machine.time_limit = std::chrono::seconds(20);
  const LaunchResult result = machine.run({1, 1, 1}, {64, 1, 1}, Parameters().add(machine.address(0)));
  INFO(result.detail);
  REQUIRE(result.fault == Fault::none);
  for (uint32_t t = 0; t < 64; ++t) CHECK(machine.at<uint32_t>(0)[t] == 7);
}

TEST_CASE("what was written before arriving is there after the wait, time and again") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 values[128];
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    mov.u32 %r3, values; shl.b32 %r4, %tid, 2; add.u32 %r4, %r3, %r4;
    sub.u32 %r5, %n, %tid; sub.u32 %r5, %r5, 1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5;
  AGAIN:
    add.u32 %r6, %r1, %tid; st.shared.u32 [%r4], %r6;
    barrier.cluster.arrive; add.u32 %r1, %r1, 1; barrier.cluster.wait;
    ld.shared.u32 %r7, [%r5]; add.u32 %r2, %r2, %r7;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    setp.lt.u32 %p1, %r1, 5; @%p1 bra AGAIN;
    st.global.u32 [%slot], %r2;)"),
                       3, 100, 300);
  for (uint32_t t = 0; t < 300; ++t) CHECK(out[t] == 5 * (99 - t % 100) + 10);
}

TEST_CASE("a thread may end after it has arrived; the others still wait for each other") {
  const auto out = run(kernel(R"(
    .shared .align 4 .b32 late;
    setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [late], 0;
    bar.sync 0;
    setp.lt.u32 %p1, %tid, 32; setp.ge.u32 %p2, %tid, 64;
    @%p1 barrier.cluster.arrive;
    @%p1 ret;
    @!%p2 bra WAIT;
    mov.u32 %r1, 0;
  SLOW:
    add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 300000; @%p3 bra SLOW;
    st.shared.u32 [late], 9;
  WAIT:
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared.u32 %r2, [late]; st.global.u32 [%slot], %r2;)"),
                       1, 96, 96);
  for (uint32_t t = 32; t < 96; ++t) CHECK(out[t] == 9);
}
