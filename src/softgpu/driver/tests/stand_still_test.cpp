// All work stops between two instructions, and goes on as if nothing had been.
#include "softgpu/driver/software/stand_still.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "driver_fixture.h"

namespace {

// Each block counts in a word of its own until the flag is set.
constexpr const char* count_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 flag, .param .u64 counts)
{
    .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [counts];
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
    mov.u32 %r2, 0;
AGAIN:
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%rd4], %r2;
    ld.volatile.global.u32 %r3, [%rd1];
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra AGAIN;
    ret;
}
)";

constexpr unsigned block_count = 5;

// A stream in which such a kernel runs; its memory is this process's own.
struct Counting {
  Counting() : kernel(count_ptx, "count"), stream(make_stream()) {
    REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4 * (1 + block_count)));
    REQUIRE_CUDA(cuMemsetD32_v2(memory, 0, 1 + block_count));
    CUdeviceptr counts = memory + 4;
    REQUIRE_CUDA(launch(kernel.function, block_count, 32, stream, {&memory, &counts}));
  }
  [[nodiscard]] std::atomic<unsigned>& word(unsigned n) const {
    return reinterpret_cast<std::atomic<unsigned>*>(memory)[n];
  }
  [[nodiscard]] unsigned sum() const {
    unsigned all = 0;
    for (unsigned n = 1; n <= block_count; ++n) all += word(n).load();
    return all;
  }
  void wait_for_growth() const {
    for (const unsigned before = sum(); sum() == before;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void finish() const {
    word(0).store(1);
    REQUIRE_CUDA(cuStreamSynchronize(stream));
  }

  LoadedKernel kernel;
  CUstream stream;
  CUdeviceptr memory = 0;
};

struct StandingStill {
  StandingStill() { REQUIRE_CUDA(gpupool_softgpu_stand_still(1)); }
  ~StandingStill() { CHECK_CUDA(gpupool_softgpu_stand_still(0)); }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;
};

void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

}  // namespace

TEST_CASE("kernels stand still, and go on where they were") {
  CurrentContext context;
  const Counting counting;
  for (int round = 0; round < 3; ++round) {
    counting.wait_for_growth();
    const StandingStill standing;
    const unsigned before = counting.sum();
    rest();
    CHECK_EQ(counting.sum(), before);
    CHECK_RESULT(cuStreamQuery(counting.stream), CUDA_ERROR_NOT_READY);
  }
  counting.wait_for_growth();
  counting.finish();
}

TEST_CASE("what runs has a name, and its time stands still, too") {
  CurrentContext context;
  char name[16] = {};
  std::int64_t first = 0, second = 0;
  CHECK_EQ(gpupool_softgpu_running(name, sizeof name, &first), 0);
  const Counting counting;
  counting.wait_for_growth();
  {
    const StandingStill standing;
    CHECK_EQ(gpupool_softgpu_running(name, sizeof name, &first), 1);
    CHECK_EQ(std::string(name), "count");
    CHECK_GT(first, 0);
    rest();
    CHECK_EQ(gpupool_softgpu_running(name, 3, &second), 1);
    CHECK_EQ(std::string(name), "co");
    CHECK_EQ(first, second);
  }
  CHECK_EQ(gpupool_softgpu_running(nullptr, 0, &second), 0);
  counting.finish();
  CHECK_EQ(gpupool_softgpu_running(name, sizeof name, &second), 0);
}

TEST_CASE("what was not begun is not begun while everything stands still") {
  CurrentContext context;
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuMemsetD32_v2(memory, 1, 1));
  {
    const StandingStill standing;
    REQUIRE_CUDA(cuMemsetD32Async(memory, 2, 1, stream));
    rest();
    CHECK_EQ(*reinterpret_cast<volatile unsigned*>(memory), 1U);
    CHECK_RESULT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  }
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(*reinterpret_cast<volatile unsigned*>(memory), 2U);
}

TEST_CASE("what stands still takes no device time") {
  CurrentContext context;
  CUevent begin = nullptr, end = nullptr;
  REQUIRE_CUDA(cuEventCreate(&begin, 0));
  REQUIRE_CUDA(cuEventCreate(&end, 0));
  const auto wall_begin = std::chrono::steady_clock::now();
  REQUIRE_CUDA(cuEventRecord(begin, nullptr));
  const Counting counting;
  REQUIRE_CUDA(cuEventRecord(end, counting.stream));
  counting.wait_for_growth();
  std::chrono::steady_clock::duration stood{};
  {
    const StandingStill standing;
    const auto from = std::chrono::steady_clock::now();
    rest();
    stood = std::chrono::steady_clock::now() - from;
  }
  counting.finish();
  const auto wall = std::chrono::steady_clock::now() - wall_begin;
  float milliseconds = 0;
  REQUIRE_CUDA(cuEventElapsedTime(&milliseconds, begin, end));
  CHECK_GT(milliseconds, 0);
  const std::chrono::duration<double, std::milli> most = wall - stood;
  CHECK_LE(milliseconds, most.count() + 0.01);  // a float of milliseconds
}

TEST_CASE("a context is destroyed while its kernel stands still") {
  const auto counting = [] {
    CurrentContext context;
    auto made = std::make_unique<Counting>();
    made->wait_for_growth();
    REQUIRE_CUDA(gpupool_softgpu_stand_still(1));
    return made;
  }();
  REQUIRE_CUDA(gpupool_softgpu_stand_still(0));
}

TEST_CASE("the device's clock stands still with its work, and never goes back") {
  CurrentContext context;
  std::atomic<bool> done{false};
  std::thread looks([&] {
    std::int64_t before = gpupool_softgpu_device_ns();
    while (!done) {
      const std::int64_t now = gpupool_softgpu_device_ns();
      CHECK_GE(now, before);
      before = now;
    }
  });
  for (int round = 0; round < 200; ++round) {
    std::int64_t stopped = 0;
    {
      const StandingStill standing;
      stopped = gpupool_softgpu_device_ns();
      std::this_thread::yield();
      CHECK_EQ(gpupool_softgpu_device_ns(), stopped);
    }
    CHECK_GE(gpupool_softgpu_device_ns(), stopped);
  }
  done = true;
  looks.join();
}

TEST_CASE("an event's time is that at which the device came to it") {
  CurrentContext context;
  std::int64_t began = 0, ended = 0;
  CUevent before = nullptr, after = nullptr;
  REQUIRE_CUDA(cuEventCreate(&before, CU_EVENT_DEFAULT));
  REQUIRE_CUDA(cuEventCreate(&after, CU_EVENT_DEFAULT));
  CHECK_EQ(gpupool_softgpu_event_ns(before, &began), CUDA_ERROR_NOT_READY);
  {
    const Counting counting;
    REQUIRE_CUDA(cuEventRecord(after, counting.stream));
    counting.wait_for_growth();
    CHECK_EQ(gpupool_softgpu_event_ns(after, &ended), CUDA_ERROR_NOT_READY);
    REQUIRE_CUDA(cuEventRecord(before, make_stream()));
    REQUIRE_CUDA(cuEventSynchronize(before));
    CHECK_EQ(gpupool_softgpu_event_ns(before, &began), CUDA_SUCCESS);
    counting.finish();
  }
  CHECK_EQ(gpupool_softgpu_event_ns(after, &ended), CUDA_SUCCESS);
  CHECK_LE(began, ended);
  CHECK_LE(ended, gpupool_softgpu_device_ns());
  CHECK_EQ(gpupool_softgpu_event_ns(after, nullptr), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(cuEventDestroy_v2(before));
  REQUIRE_CUDA(cuEventDestroy_v2(after));
  CHECK_EQ(gpupool_softgpu_event_ns(after, &ended), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("several threads stop work and let it go on") {
  CurrentContext context;
  const Counting counting;
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) {
    threads.emplace_back([n] {
      for (int round = 0; round < 20; ++round) CHECK_CUDA(gpupool_softgpu_stand_still((n + round) % 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE_CUDA(gpupool_softgpu_stand_still(0));
  counting.wait_for_growth();
  counting.finish();
}
