#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "driver_fixture.h"

namespace {

// Host function that waits for the test to let it go: makes a stream busy without a kernel.
struct Latch {
  std::atomic<bool> open{false};
  std::atomic<bool> passed{false};
  static void CUDA_CB wait(void* data) {
    auto* latch = static_cast<Latch*>(data);
    while (!latch->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    latch->passed = true;
  }
};

// Opens a latch in a moment, when the program waits already.
std::thread open_soon(Latch& latch) {
  return std::thread([&latch] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    latch.open = true;
  });
}

CUdeviceptr address_of(void* place) {
  return reinterpret_cast<CUdeviceptr>(place);
}

}  // namespace

TEST_CASE("a stream works while the program goes on, in order") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuMemsetD32_v2(memory, 1, 1));
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 2, 1, stream));
  CHECK_RESULT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));  // legacy stream does not wait for a non-blocking one
  CHECK_EQ(value, 1);
  latch.open = true;
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK(latch.passed);
  CHECK_CUDA(cuStreamQuery(stream));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));
  CHECK_EQ(value, 2);
}

TEST_CASE("the legacy default stream waits for blocking streams, and they for it") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_DEFAULT);
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 5, 1, stream));
  std::thread opener = open_soon(latch);
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));  // in the legacy stream: after the fill
  CHECK_EQ(value, 5);
  opener.join();

  Latch second;
  REQUIRE_CUDA(cuLaunchHostFunc(nullptr, Latch::wait, &second));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 6, 1, stream));
  CHECK_RESULT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  second.open = true;
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK(second.passed);
}

TEST_CASE("an event orders two streams, and is timed") {
  CurrentContext context;
  const CUstream first = make_stream(CU_STREAM_NON_BLOCKING), second = make_stream(CU_STREAM_NON_BLOCKING);
  CUevent start = nullptr, end = nullptr;
  REQUIRE_CUDA(cuEventCreate(&start, CU_EVENT_DEFAULT));
  REQUIRE_CUDA(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CHECK_CUDA(cuEventQuery(start));  // never recorded
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 8));
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE_CUDA(cuEventRecord(start, first));
  REQUIRE_CUDA(cuLaunchHostFunc(first, Latch::wait, &latch));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 3, 1, first));
  REQUIRE_CUDA(cuEventRecord(end, first));
  REQUIRE_CUDA(cuStreamWaitEvent(second, end, 0));
  REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, second));
  CHECK_RESULT(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  float milliseconds = -1;
  CHECK_RESULT(cuEventElapsedTime_v2(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  REQUIRE_CUDA(cuEventSynchronize(start));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  latch.open = true;
  REQUIRE_CUDA(cuStreamSynchronize(second));
  const std::chrono::duration<float, std::milli> wall = std::chrono::steady_clock::now() - begin;
  int values[2] = {};
  REQUIRE_CUDA(cuMemcpyDtoH_v2(values, memory, 8));
  CHECK_EQ(values[1], 3);
  CHECK_CUDA(cuEventElapsedTime_v2(&milliseconds, start, end));
  CHECK_GE(milliseconds, 19.0F);
  CHECK_LE(milliseconds, wall.count());
}

TEST_CASE("waiting for a value in memory is part of stream order") {
  CurrentContext context;
  const CUstream waiter = make_stream(CU_STREAM_NON_BLOCKING), writer = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 8));
  REQUIRE_CUDA(cuMemsetD32_v2(memory, 0, 2));
  REQUIRE_CUDA(cuStreamWaitValue32_v2(waiter, memory, 7, CU_STREAM_WAIT_VALUE_EQ));
  REQUIRE_CUDA(cuMemsetD32Async(memory + 4, 1, 1, waiter));
  CHECK_RESULT(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
  REQUIRE_CUDA(cuStreamWriteValue32_v2(writer, memory, 7, 0));
  REQUIRE_CUDA(cuStreamSynchronize(waiter));
  int values[2] = {};
  REQUIRE_CUDA(cuMemcpyDtoH_v2(values, memory, 8));
  CHECK_EQ(values[1], 1);
}

TEST_CASE("a small pageable source may change as soon as the call is back") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  int source = 41;
  REQUIRE_CUDA(cuMemcpyHtoDAsync_v2(memory, &source, 4, stream));
  source = 0;
  latch.open = true;
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));
  CHECK_EQ(value, 41);
}

TEST_CASE("a copy from host to host is done when the call is back") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Latch latch;
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  std::thread opener = open_soon(latch);
  int source = 41, target = 0;
  CHECK_CUDA(cuMemcpyAsync(address_of(&target), address_of(&source), 4, stream));
  CHECK_EQ(target, 41);
  opener.join();
}

TEST_CASE("a copy of rows to pageable memory is done when the call is back, whatever the address is called") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuMemsetD32_v2(memory, 41, 1));
  for (const CUmemorytype type : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED}) {
    Latch latch;
    REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
    std::thread opener = open_soon(latch);
    int target = 0;
    CUDA_MEMCPY2D shape{};
    shape.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    shape.srcDevice = memory;
    shape.dstMemoryType = type;
    shape.dstHost = &target;
    shape.dstDevice = address_of(&target);
    shape.WidthInBytes = 4;
    shape.Height = 1;
    CHECK_CUDA(cuMemcpy2DAsync_v2(&shape, stream));
    CHECK_EQ(target, 41);
    opener.join();
  }
}

TEST_CASE("memory goes behind the work of its own context, whichever is current") {
  for (const bool on_host : {false, true}) {
    CurrentContext owner(1);
    Latch latch;
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
    REQUIRE_CUDA(cuMemAllocHost_v2(&pinned, 4));
    REQUIRE_CUDA(cuLaunchHostFunc(make_stream(CU_STREAM_NON_BLOCKING), Latch::wait, &latch));
    std::thread opener = open_soon(latch);
    CurrentContext other(0);
    CHECK_CUDA(on_host ? cuMemFreeHost(pinned) : cuMemFree_v2(memory));
    CHECK(latch.passed);
    opener.join();
  }
}

TEST_CASE("a copy between contexts waits for the work of both") {
  CurrentContext theirs(1);
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr source = 0, target = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&source, 4));
  CurrentContext mine(0);
  REQUIRE_CUDA(cuMemAlloc_v2(&target, 4));
  CUDA_MEMCPY3D_PEER shape{};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcContext = theirs.get();
  shape.srcDevice = source;
  shape.dstContext = mine.get();
  shape.dstDevice = target;
  shape.WidthInBytes = 4;
  shape.Height = shape.Depth = 1;
  for (const int wanted : {3, 4}) {
    Latch latch;
    REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
    REQUIRE_CUDA(cuMemsetD32Async(source, static_cast<unsigned>(wanted), 1, stream));
    std::thread opener = open_soon(latch);
    CHECK_CUDA(wanted == 3 ? cuMemcpyPeer(target, mine.get(), source, theirs.get(), 4)
                           : cuMemcpy3DPeer(&shape));
    int value = 0;
    CHECK_CUDA(cuMemcpyDtoH_v2(&value, target, 4));
    CHECK_EQ(value, wanted);
    opener.join();
  }
  CHECK_RESULT(cuMemcpyPeer(target, reinterpret_cast<CUcontext>(1), source, theirs.get(), 4),
               CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a destroyed stream finishes its work first") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Latch latch;
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  CHECK_CUDA(cuStreamDestroy_v2(stream));
  CHECK_RESULT(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  latch.open = true;
  for (int i = 0; i < 60'000 && !latch.passed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(latch.passed);
}

TEST_CASE("the legacy default stream waits for a blocking stream that was destroyed") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_DEFAULT);
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 5, 1, stream));
  REQUIRE_CUDA(cuStreamDestroy_v2(stream));
  CHECK_RESULT(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  std::thread opener = open_soon(latch);
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));
  CHECK_EQ(value, 5);
  opener.join();
  CHECK_CUDA(cuStreamQuery(nullptr));
}

TEST_CASE("all that waits for a context waits for its destroyed streams") {
  const auto wait_by = [](auto call) {
    CurrentContext context;
    const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    Latch latch;
    REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
    REQUIRE_CUDA(cuStreamDestroy_v2(stream));
    CHECK_CUDA(cuStreamQuery(nullptr));  // the legacy stream needn't
    std::thread opener = open_soon(latch);
    call();
    CHECK(latch.passed);
    opener.join();
  };
  SUBCASE("synchronisation") {
    wait_by([] { CHECK_CUDA(cuCtxSynchronize()); });
  }
  SUBCASE("an event of the context") {
    wait_by([] {
      CUevent all = nullptr;
      REQUIRE_CUDA(cuEventCreate(&all, CU_EVENT_DISABLE_TIMING));
      REQUIRE_CUDA(cuCtxRecordEvent(nullptr, all));
      CHECK_CUDA(cuEventSynchronize(all));
    });
  }
  SUBCASE("a checkpoint") {
    wait_by([] {
      REQUIRE_CUDA(cuCheckpointProcessLock(getpid(), nullptr));
      CHECK_CUDA(cuCheckpointProcessUnlock(getpid(), nullptr));
    });
  }
  SUBCASE("its end") {
    wait_by([] {
      CUcontext context = nullptr;
      REQUIRE_CUDA(cuCtxGetCurrent(&context));
      CHECK_CUDA(cuCtxDestroy_v2(context));
    });
  }
}

TEST_CASE("the per-thread default stream is another one for every thread") {
  CurrentContext context;
  unsigned long long mine = 0, theirs = 0, legacy = 0;
  CHECK_CUDA(cuStreamGetId_ptsz(nullptr, &mine));
  CHECK_CUDA(cuStreamGetId(nullptr, &legacy));
  const CUcontext shared = context.get();
  std::thread([&] {
    REQUIRE_CUDA(cuCtxSetCurrent(shared));
    CHECK_CUDA(cuStreamGetId(CU_STREAM_PER_THREAD, &theirs));
  }).join();
  CHECK_NE(mine, theirs);
  CHECK_NE(mine, legacy);
}

TEST_CASE("a program that runs far ahead of a stream is held back") {
  CurrentContext context;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Latch latch;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  REQUIRE_CUDA(cuLaunchHostFunc(stream, Latch::wait, &latch));
  constexpr int wanted = 10000;
  std::atomic<int> given{0};
  std::thread program([&] {
    cuCtxSetCurrent(context.get());
    for (int n = 0; n < wanted; ++n) {
      if (cuMemsetD32Async(memory, static_cast<unsigned>(n), 1, stream) != CUDA_SUCCESS) return;
      ++given;
    }
  });
  // Until it gets no further. A minute is for a machine that does not let it begin.
  for (int before = -1, looks = 0; (given != before || given <= 1000) && looks < 600; ++looks) {
    before = given;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(given > 1000);
  CHECK(given < wanted);
  CHECK_RESULT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);  // others are not held back with it
  latch.open = true;
  program.join();
  CHECK_EQ(given, wanted);
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, memory, 4));
  CHECK_EQ(value, wanted - 1);
}
