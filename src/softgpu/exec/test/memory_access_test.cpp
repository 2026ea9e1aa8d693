// Loads and stores, whatever their lanes' addresses look like: the short ways for neighbours, rows and
// broadcasts do what lane by lane would do.
#include <cstring>
#include <functional>
#include <random>

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

using namespace softgpu;
using softgpu::testing::Machine;
using softgpu::testing::Parameters;
using softgpu::testing::ptx_header;

namespace {

constexpr uint32_t word_count = 1024;                       // of data, at data_offset
constexpr size_t data_offset = 16384, copy_offset = 32768;  // offsets in the arena
constexpr int kernel_offsets[] = {0, 4, -8, 64, 0};         // bytes, as the kernels write them

// out[t] = sum over k of (k + 1) * word(first[t] + offset k), for threads with take[t].
// The first 4 KiB of the arena: out, then first (bytes), then take.
std::string reading(bool shared) {
  const std::string space = shared ? "shared" : "global", at = shared ? "%a" : "%x2";
  return ptx_header +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<20>, %tid, %a, %i; .reg .b64 "
         "%x<8>, %out, %slot;\n.shared .align 16 .b8 buffer[4096];\n"
         "ld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 %slot, %tid, 4, %out;\n"
         "mov.u32 %i, %tid;\n"
         "FILL: mad.wide.u32 %x3, %i, 4, %out; ld.global.u32 %r1, [%x3+16384]; mov.u32 %a, buffer;\n"
         "mad.lo.u32 %a, %i, 4, %a; st.shared.u32 [%a], %r1; add.u32 %i, %i, 64;\n"
         "setp.lt.u32 %p1, %i, 1024; @%p1 bra FILL; bar.sync 0;\n"
         "ld.global.u32 %r2, [%slot+1024]; ld.global.u32 %r3, [%slot+2048];\n"
         "cvt.u64.u32 %x2, %r2; add.u64 %x2, %x2, %out; add.u64 %x2, %x2, 16384;\n"
         "mov.u32 %a, buffer; add.u32 %a, %a, %r2;\n"
         "mov.u32 %r10, 0; setp.eq.u32 %p2, %r3, 0; @%p2 bra SKIP;\n"
         "ld." +
         space + ".u32 %r4, [" + at + "]; ld." + space + ".u32 %r5, [" + at + "+4]; ld." + space +
         ".u32 %r6, [" + at + "+-8]; ld." + space + ".u32 %r7, [" + at +
         "+64];\n"
         "add.u32 %a, %a, 4; add.u64 %x2, %x2, 4; add.u32 %a, %a, -4; add.u64 %x2, %x2, -4;\n"
         "ld." +
         space + ".u32 %r8, [" + at +
         "];\n"
         "mad.lo.u32 %r10, %r4, 1, %r10; mad.lo.u32 %r10, %r5, 2, %r10; mad.lo.u32 %r10, %r6, 3, %r10;\n"
         "mad.lo.u32 %r10, %r7, 4, %r10; mad.lo.u32 %r10, %r8, 5, %r10;\n"
         "SKIP: st.global.u32 [%slot], %r10;\nret;\n}\n";
}

// Threads with take[t] write t + 1 and t + 101 at their place and the one behind (places are two words
// apart).
const std::string writing_program =
    ptx_header +
    ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<20>, %tid; .reg .b64 %x<8>, %out, "
    "%slot;\n"
    "ld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 %slot, %tid, 4, %out;\n"
    "ld.global.u32 %r2, [%slot+1024]; ld.global.u32 %r3, [%slot+2048];\n"
    "cvt.u64.u32 %x2, %r2; add.u64 %x2, %x2, %out; add.u64 %x2, %x2, 32768;\n"
    "add.u32 %r4, %tid, 1; add.u32 %r5, %tid, 101; setp.ne.u32 %p2, %r3, 0;\n"
    "@%p2 st.global.u32 [%x2], %r4; @!%p2 bra END;\n"
    "st.global.u32 [%x2+4], %r5; st.global.u32 [%x2+2048], %r5; st.global.u16 [%x2+2052], %r4;\n"
    "END: ret;\n}\n";

using Pattern = std::function<uint32_t(uint32_t thread)>;

std::vector<std::pair<const char*, Pattern>> patterns(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return {{"neighbours", [](uint32_t t) { return 2 + t; }},
          {"one for all", [](uint32_t) { return 77u; }},
          {"rows of 16", [](uint32_t t) { return 100 + t % 16 + t / 16 * 32; }},
          {"one for each row", [](uint32_t t) { return 5 + t / 16 * 9; }},
          {"a row and one for all", [](uint32_t t) { return t % 32 < 16 ? 40 + t % 16 : 60u; }},
          {"backwards", [](uint32_t t) { return 200 - t; }},
          {"every other", [](uint32_t t) { return 4 + 2 * t; }},
          {"almost neighbours", [](uint32_t t) { return t == 37 ? 9u : 10 + t; }},
          {"any", [random](uint32_t) { return 2 + static_cast<uint32_t>((*random)() % 900); }}};
}
std::vector<std::pair<const char*, Pattern>> takers(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return {{"all", [](uint32_t) { return 1u; }},
          {"the lower half", [](uint32_t t) { return t % 32 < 16 ? 1u : 0u; }},
          {"every third", [](uint32_t t) { return t % 3 == 0 ? 1u : 0u; }},
          {"any", [random](uint32_t) { return static_cast<uint32_t>((*random)() & 1); }}};
}

constexpr uint32_t thread_count = 64;

}  // namespace

TEST_CASE("loads of any shape read what lane by lane would read") {
  for (const bool shared : {false, true}) {
    Machine machine(reading(shared));
    INFO(machine.compiled.log);
    REQUIRE(machine.image != nullptr);
    auto* const data = machine.at<uint32_t>(data_offset);
    for (uint32_t i = 0; i < word_count; ++i) data[i] = i * 2654435761u;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      for (const auto& [shape, place] : patterns(seed)) {
        for (const auto& [which, take] : takers(seed)) {
          auto* const first = machine.at<uint32_t>(1024);
          auto* const taken = machine.at<uint32_t>(2048);
          for (uint32_t t = 0; t < thread_count; ++t) {
            first[t] = 4 * place(t);
            taken[t] = take(t);
          }
          const LaunchResult result =
              machine.run({1, 1, 1}, {thread_count, 1, 1}, Parameters().add(machine.address(0)));
          INFO(shape << ", " << which << (shared ? ", shared " : ", global ") << result.detail);
          REQUIRE(result.fault == Fault::none);
          bool same = true;
          for (uint32_t t = 0; t < thread_count; ++t) {
            uint32_t sum = 0;
            for (uint32_t k = 0; taken[t] != 0 && k < 5; ++k) {
              sum += (k + 1) * data[(static_cast<int>(first[t]) + kernel_offsets[k]) / 4];
            }
            same &= machine.at<uint32_t>(0)[t] == sum;
          }
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("stores of any shape write active lanes' memory and no other") {
  Machine machine(writing_program);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  for (uint32_t seed = 0; seed < 8; ++seed) {
    for (const auto& [shape, place] : patterns(seed)) {
      for (const auto& [which, take] : takers(seed)) {
        auto* const first = machine.at<uint32_t>(1024);
        auto* const taken = machine.at<uint32_t>(2048);
        auto* const copy = machine.at<uint32_t>(copy_offset);
        std::vector<uint32_t> expected(4096, 0xabababab);
        std::memcpy(copy, expected.data(), 4096 * sizeof(uint32_t));
        // One instruction after the other, the higher lane last; the warps' own order is not defined, so that
        // the second gets places of its own.
        for (uint32_t t = 0; t < thread_count; ++t) {
          first[t] = 4 * (place(t) % 200 + t / 32 * 1024);
          taken[t] = take(t);
        }
        auto put = [&](int offset, uint32_t value, uint32_t bytes, uint32_t t) {
          std::memcpy(reinterpret_cast<std::byte*>(expected.data()) + first[t] + offset, &value, bytes);
        };
        for (uint32_t warp = 0; warp < 2; ++warp) {
          for (uint32_t step = 0; step < 4; ++step) {
            for (uint32_t t = 32 * warp; t < 32 * warp + 32; ++t) {
              if (taken[t] == 0) continue;
              if (step == 0) put(0, t + 1, 4, t);
              if (step == 1) put(4, t + 101, 4, t);
              if (step == 2) put(2048, t + 101, 4, t);
              if (step == 3) put(2052, t + 1, 2, t);
            }
          }
        }
        const LaunchResult result =
            machine.run({1, 1, 1}, {thread_count, 1, 1}, Parameters().add(machine.address(0)));
        INFO(shape << ", " << which << " " << result.detail);
        REQUIRE(result.fault == Fault::none);
        CHECK(std::memcmp(copy, expected.data(), 4096 * sizeof(uint32_t)) == 0);
      }
    }
  }
}

TEST_CASE("an access through a register that was good for another offset faults by its own address") {
  auto fault = [](const std::string& second) {
    Machine machine(
        ptx_header +
        ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<4>, %tid, %a; .reg .b64 %x<4>;\n.shared "
        ".align 16 .b8 buffer[128];\nld.param.u64 %x1, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 "
        "%x2, %tid, 4, %x1; mov.u32 %a, buffer; mad.lo.u32 %a, %tid, 4, %a;\n"
        "ld.global.u32 %r1, [%x2]; ld.shared.u32 %r1, [%a];\n" +
        second + "\nret;\n}\n");
    INFO(machine.compiled.log);
    REQUIRE(machine.image != nullptr);
    return machine.run({1, 1, 1}, {32, 1, 1}, Parameters().add(machine.address(0))).fault;
  };
  CHECK(fault("ld.shared.u32 %r2, [%a];") == Fault::none);
  CHECK(fault("ld.shared.u32 %r2, [%a+4];") == Fault::illegal_address);
  CHECK(fault("ld.shared.u32 %r2, [%a+-4];") == Fault::illegal_address);
  CHECK(fault("st.shared.u32 [%a+128], %r1;") == Fault::illegal_address);
  CHECK(fault("ld.shared.u32 %r2, [%a+2];") == Fault::misaligned_address);
  CHECK(fault("ld.global.u32 %r2, [%x2+1048448];") == Fault::none);
  CHECK(fault("ld.global.u32 %r2, [%x2+1048452];") == Fault::illegal_address);
  CHECK(fault("st.global.u32 [%x2+-4], %r1;") == Fault::illegal_address);
  CHECK(fault("st.global.u32 [%x2+1], %r1;") == Fault::misaligned_address);
}

TEST_CASE("lanes of one warp that wait for each other all come on") {
  // Each lane waits until the lane above it has gone: the last one, which the code puts last, goes first.
  Machine chain(ptx_header +
                ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<8>, %tid; .reg .b64 "
                "%out, %slot;\nld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mad.wide.u32 %slot, %tid, 4, "
                "%out; setp.eq.u32 %p1, %tid, 31; @%p1 bra GO;\n"
                "WAIT: ld.volatile.global.u32 %r1, [%slot+4]; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;\n"
                "GO: add.u32 %r2, %tid, 1; st.volatile.global.u32 [%slot], %r2;\nret;\n}\n");
  REQUIRE(chain.image != nullptr);
  REQUIRE(chain.run({1, 1, 1}, {32, 1, 1}, Parameters().add(chain.address(0))).fault == Fault::none);
  for (uint32_t t = 0; t < 32; ++t) CHECK(chain.at<uint32_t>(0)[t] == t + 1);

  // Two lanes hand a ball to each other a hundred times.
  Machine ball(ptx_header +
               ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<8>, %tid; .reg .b64 "
               "%out;\nld.param.u64 %out, [p]; mov.u32 %tid, %tid.x; mov.u32 %r3, 0;\n"
               "ROUND: and.b32 %r4, %r3, 1; setp.ne.u32 %p3, %r4, %tid; @%p3 bra NEXT;\n"
               "WAIT: ld.volatile.global.u32 %r1, [%out]; setp.ne.u32 %p2, %r1, %r3; @%p2 bra WAIT;\n"
               "add.u32 %r2, %r3, 1; st.volatile.global.u32 [%out], %r2;\n"
               "NEXT: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 100; @%p1 bra ROUND;\nret;\n}\n");
  REQUIRE(ball.image != nullptr);
  REQUIRE(ball.run({1, 1, 1}, {2, 1, 1}, Parameters().add(ball.address(0))).fault == Fault::none);
  CHECK(ball.at<uint32_t>(0)[0] == 100);
}
