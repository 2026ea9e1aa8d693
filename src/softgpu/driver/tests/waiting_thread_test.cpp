// A thread that waits for a stream does the stream's work itself, which must not show.
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "driver_fixture.h"

namespace {

// Adds one to a word, for which it takes its time: two at once would lose one. Each block after the first
// takes far longer than the one before.
constexpr const char* count_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 word)
{
    .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word];
    mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, 50000, 200;
    ld.volatile.global.u32 %r1, [%rd1];
    mov.u32 %r2, 0;
AGAIN:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r4;
    @%p1 bra AGAIN;
    add.u32 %r1, %r1, 1;
    st.volatile.global.u32 [%rd1], %r1;
    ret;
}
)";

CUdeviceptr make_word() {
  CUdeviceptr word = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&word, 4));
  REQUIRE_CUDA(cuMemsetD32_v2(word, 0, 1));
  return word;
}

unsigned value_of(CUdeviceptr word) {
  unsigned value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, word, 4));
  return value;
}

std::chrono::nanoseconds processor_time(clockid_t whose) {
  timespec now{};
  REQUIRE_EQ(clock_gettime(whose, &now), 0);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

TEST_CASE("who waits works") {
  CurrentContext context;
  const LoadedKernel kernel(wait_ptx, "wait_for");
  const CUstream stream = make_stream();
  void* memory = nullptr;
  REQUIRE_CUDA(cuMemHostAlloc(&memory, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  auto& flag = *static_cast<std::atomic<unsigned>*>(memory);
  CUdeviceptr address = 0;
  REQUIRE_CUDA(cuMemHostGetDevicePointer_v2(&address, memory, 0));
  clockid_t waiter{};
  REQUIRE_EQ(pthread_getcpuclockid(pthread_self(), &waiter), 0);
  std::atomic<bool> worked{false};
  // Another thread may be quicker to take a kernel, and then spends the time in this one's stead.
  for (int round = 0; round < 200 && !worked; ++round) {
    flag = 0;
    const auto mine = processor_time(waiter), all = processor_time(CLOCK_PROCESS_CPUTIME_ID);
    std::thread lets_go([&] {
      while (!worked && processor_time(CLOCK_PROCESS_CPUTIME_ID) - all < std::chrono::milliseconds(60)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // A thread that only waits takes microseconds.
        worked = processor_time(waiter) - mine > std::chrono::milliseconds(20);
      }
      flag = 1;
    });
    REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&address}));
    REQUIRE_CUDA(cuStreamSynchronize(stream));
    lets_go.join();
  }
  CHECK(worked);
  CHECK_CUDA(cuMemFreeHost(memory));
}

TEST_CASE("what nobody waits for is done too") {
  CurrentContext context;
  const LoadedKernel kernel(count_ptx, "count");
  const CUstream stream = make_stream();
  CUdeviceptr word = make_word();
  constexpr unsigned round_count = 200;
  for (unsigned round = 0; round < round_count; ++round) {
    // Helpers stay awake for a moment after the one, and are asleep after the other.
    REQUIRE_CUDA(launch(kernel.function, round % 2 == 0 ? 5 : 1, 1, stream, {&word}));
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);
  CHECK(value_of(word) >= round_count);
}

TEST_CASE("threads that wait for one stream do its work one after the other") {
  CurrentContext context;
  const LoadedKernel kernel(count_ptx, "count");
  const CUstream stream = make_stream();
  CUdeviceptr word = make_word();
  constexpr unsigned thread_count = 3, round_count = 300, launches_each = 3;
  std::vector<std::thread> threads;
  std::atomic<unsigned> failed{0};
  for (unsigned i = 0; i < thread_count; ++i) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context.get());
      for (unsigned round = 0; round < round_count; ++round) {
        for (unsigned k = 0; k < launches_each; ++k)
          if (launch(kernel.function, 1, 1, stream, {&word}) != CUDA_SUCCESS) ++failed;
        if (cuStreamSynchronize(stream) != CUDA_SUCCESS) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(failed, 0);
  CHECK_EQ(value_of(word), thread_count * round_count * launches_each);
}

TEST_CASE("who waits for early work is not kept by what comes after it") {
  CurrentContext context;
  const LoadedKernel count(count_ptx, "count"), wait_for(wait_ptx, "wait_for");
  const CUstream stream = make_stream();
  CUevent early = nullptr;
  REQUIRE_CUDA(cuEventCreate(&early, CU_EVENT_DEFAULT));
  CUdeviceptr word = make_word();
  void* memory = nullptr;
  REQUIRE_CUDA(cuMemHostAlloc(&memory, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  auto& flag = *static_cast<std::atomic<unsigned>*>(memory);
  CUdeviceptr address = 0;
  REQUIRE_CUDA(cuMemHostGetDevicePointer_v2(&address, memory, 0));
  for (unsigned round = 1; round <= 300; ++round) {
    flag = 0;
    REQUIRE_CUDA(launch(count.function, 1, 1, stream, {&word}));
    REQUIRE_CUDA(cuEventRecord(early, stream));
    REQUIRE_CUDA(launch(wait_for.function, 1, 1, stream, {&address}));
    REQUIRE_CUDA(cuEventSynchronize(early));
    REQUIRE_EQ(value_of(word), round);
    flag = 1;  // else the kernel goes on until the watchdog ends it
    REQUIRE_CUDA(cuStreamSynchronize(stream));
  }
  CHECK_CUDA(cuMemFreeHost(memory));
}

TEST_CASE("what calls the program back does so in a thread that is none of its own") {
  CurrentContext context;
  const LoadedKernel kernel(count_ptx, "count");
  const CUstream stream = make_stream();
  CUdeviceptr word = make_word();
  for (int round = 0; round < 100; ++round) {
    std::thread::id caller = std::this_thread::get_id();
    REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&word}));
    REQUIRE_CUDA(cuLaunchHostFunc(
        stream, [](void* id) { *static_cast<std::thread::id*>(id) = std::this_thread::get_id(); }, &caller));
    REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&word}));
    REQUIRE_CUDA(cuStreamSynchronize(stream));
    REQUIRE(caller != std::this_thread::get_id());
  }
  CHECK_EQ(value_of(word), 200);
}

TEST_CASE("a thread with a small stack may wait too") {
  CurrentContext context;
  const LoadedKernel kernel(count_ptx, "count");
  struct Work {
    CUcontext context;
    CUfunction function;
    CUdeviceptr word;
    CUresult result;
  } work{context.get(), kernel.function, make_word(), CUDA_ERROR_UNKNOWN};
  pthread_attr_t small;
  REQUIRE_EQ(pthread_attr_init(&small), 0);
  REQUIRE_EQ(pthread_attr_setstacksize(&small, 256 << 10), 0);
  pthread_t thread{};
  const auto body = [](void* data) -> void* {
    auto& mine = *static_cast<Work*>(data);
    cuCtxSetCurrent(mine.context);
    for (int round = 0; round < 50; ++round) {
      launch(mine.function, 8, 64, nullptr, {&mine.word});
      mine.result = cuCtxSynchronize();
    }
    return nullptr;
  };
  REQUIRE_EQ(pthread_create(&thread, &small, body, &work), 0);
  REQUIRE_EQ(pthread_join(thread, nullptr), 0);
  CHECK_CUDA(work.result);
  pthread_attr_destroy(&small);
}

/// AddressSanitizer does not see the frames of a cancelled thread go, and would report what runs after them
/// on the same stack.
struct FramesForgotten {
  ~FramesForgotten() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* lowest = nullptr;
    std::size_t size = 0;
    if (pthread_attr_getstack(&attributes, &lowest, &size) == 0) {
      ASAN_UNPOISON_MEMORY_REGION(
          lowest, static_cast<char*>(__builtin_frame_address(0)) - static_cast<char*>(lowest));
    }
    pthread_attr_destroy(&attributes);
  }
};

TEST_CASE("a thread that is cancelled while it waits leaves the stream in order") {
  CurrentContext context;
  const LoadedKernel kernel(count_ptx, "count");
  struct Work {
    CUcontext context;
    CUfunction function;
    CUstream stream;
    CUdeviceptr word, other;
    std::atomic<unsigned> launched{0};
  } work{context.get(), kernel.function, make_stream(), make_word(), make_word(), {}};
  const auto body = [](void* data) -> void* {
    const FramesForgotten at_the_end;
    auto& mine = *static_cast<Work*>(data);
    cuCtxSetCurrent(mine.context);
    for (;;) {
      int before = 0;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);  // a launch is not to be cut in two
      for (int k = 0; k < 4; ++k) {
        launch(mine.function, 2, 1, mine.stream, {&mine.other});  // shared: one waits for the other
        launch(mine.function, 1, 1, mine.stream, {&mine.word});
        ++mine.launched;
      }
      pthread_setcancelstate(before, nullptr);
      cuStreamSynchronize(mine.stream);
      pthread_testcancel();
    }
  };
  for (int round = 0; round < 150; ++round) {
    pthread_t thread{};
    REQUIRE_EQ(pthread_create(&thread, nullptr, body, &work), 0);
    while (work.launched < 10u * (static_cast<unsigned>(round) + 1)) std::this_thread::yield();
    REQUIRE_EQ(pthread_cancel(thread), 0);
    REQUIRE_EQ(pthread_join(thread, nullptr), 0);
    REQUIRE_CUDA(cuStreamSynchronize(work.stream));
    REQUIRE_EQ(value_of(work.word), work.launched);
  }
}

TEST_CASE("a fault in a kernel that the waiting thread does is its context's, and the thread goes on") {
  for (int round = 0; round < 20; ++round) {
    CurrentContext context;
    const LoadedKernel kernel(poke_ptx, "poke");
    CUdeviceptr nowhere = unmapped_address;
    unsigned value = 1;
    REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&nowhere, &value}));
    CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}
