// Green contexts: parts of the nominal multiprocessors.
#include "softgpu/driver/tests/driver_fixture.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace {

// Keeps a stream busy until it is opened.
struct Latch {
  std::atomic<bool> open{false}, passed{false};
  static void CUDA_CB wait(void* data) {
    auto* const latch = static_cast<Latch*>(data);
    while (!latch->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    latch->passed = true;
  }
};

CUdevResource processors() {
  CUdevResource all{};
  REQUIRE_CUDA(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  return all;
}

CUgreenCtx green_context(CUdevResource part) {
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  REQUIRE_CUDA(cuDevResourceGenerateDesc(&description, &part, 1));
  REQUIRE_CUDA(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

}  // namespace

TEST_CASE("a split hands out each multiprocessor once") {
  const CurrentContext context;
  const CUdevResource all = processors();
  unsigned groups = 0;
  REQUIRE_CUDA(cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, 3));
  CHECK(groups == all.sm.smCount / 4);  // pairs
  CUdevResource part[2]{}, rest{};
  groups = 2;
  REQUIRE_CUDA(cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, 3));
  CHECK(groups == 2);
  CHECK(part[0].sm.smCount == 4);
  CHECK(part[0].sm.smCount + part[1].sm.smCount +
            (rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0) ==
        all.sm.smCount);
  groups = 1;
  CHECK_RESULT(cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, all.sm.smCount + 1),
               CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_CASE("a kernel runs in a stream of a green context, which tells its part") {
  const CurrentContext context;
  CUdevResource part[1]{};
  const CUdevResource all = processors();
  unsigned groups = 1;
  REQUIRE_CUDA(cuDevSmResourceSplitByCount(part, &groups, &all, nullptr, 0, 2));
  const CUgreenCtx green = green_context(part[0]);
  CUcontext made = nullptr;
  REQUIRE_CUDA(cuCtxFromGreenCtx(&made, green));
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CUgreenCtx told = nullptr;
  REQUIRE_CUDA(cuStreamGetGreenCtx(stream, &told));
  CHECK(told == green);
  CUdevResource of_stream{};
  REQUIRE_CUDA(cuStreamGetDevResource(stream, &of_stream, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(of_stream.sm.smCount == 2);

  REQUIRE_CUDA(cuCtxPushCurrent_v2(made));
  const LoadedKernel poke(poke_ptx, "poke");
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
  unsigned value = 77, seen = 0;
  REQUIRE_CUDA(launch(poke.function, 1, 1, stream, {&memory, &value}));
  CUevent done = nullptr;
  REQUIRE_CUDA(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  REQUIRE_CUDA(cuGreenCtxRecordEvent(green, done));
  REQUIRE_CUDA(cuEventSynchronize(done));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&seen, memory, 4));
  CHECK(seen == 77);
  CUcontext popped = nullptr;
  REQUIRE_CUDA(cuCtxPopCurrent_v2(&popped));
  REQUIRE_CUDA(cuGreenCtxDestroy(green));
  CHECK_RESULT(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a context that waits for an event does so in streams that come later, and of other threads") {
  const CurrentContext context;
  Latch latch;
  const CUstream busy = make_stream();
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  REQUIRE_CUDA(cuLaunchHostFunc(busy, Latch::wait, &latch));
  REQUIRE_CUDA(cuEventRecord(event, busy));
  REQUIRE_CUDA(cuCtxWaitEvent(nullptr, event));
  const CUstream later = make_stream();
  std::atomic<bool> early{false};
  struct Look {
    const Latch* latch;
    std::atomic<bool>* early;
  } look{&latch, &early};
  const CUhostFn note = [](void* data) {
    const auto* const given = static_cast<Look*>(data);
    if (!given->latch->passed) *given->early = true;
  };
  REQUIRE_CUDA(cuLaunchHostFunc(later, note, &look));
  CUcontext current = context.get();
  std::thread other([&] {
    CHECK_CUDA(cuCtxSetCurrent(current));
    CHECK_CUDA(cuLaunchHostFunc(CU_STREAM_PER_THREAD, note, &look));
    CHECK_CUDA(cuCtxSetCurrent(nullptr));
  });
  other.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  latch.open = true;
  REQUIRE_CUDA(cuCtxSynchronize());
  CHECK_FALSE(early);
  CHECK_CUDA(cuStreamDestroy_v2(later));
  CHECK_CUDA(cuStreamDestroy_v2(busy));
  CHECK_CUDA(cuEventDestroy_v2(event));
}

TEST_CASE("an event of a context does not hold up what comes after it in other streams") {
  const CurrentContext context;
  Latch latch;
  const CUstream busy = make_stream(), blocking = make_stream(CU_STREAM_DEFAULT);
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  REQUIRE_CUDA(cuLaunchHostFunc(busy, Latch::wait, &latch));
  REQUIRE_CUDA(cuCtxRecordEvent(nullptr, event));
  CHECK_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  REQUIRE_CUDA(
      cuLaunchHostFunc(blocking, [](void* data) { static_cast<Latch*>(data)->open = true; }, &latch));
  for (int i = 0; i < 500 && !latch.passed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(latch.passed);
  latch.open = true;
  REQUIRE_CUDA(cuEventSynchronize(event));
  CHECK_CUDA(cuStreamDestroy_v2(blocking));
  CHECK_CUDA(cuStreamDestroy_v2(busy));
  CHECK_CUDA(cuEventDestroy_v2(event));
}

TEST_CASE("a context's event is refused while a stream captures") {
  const CurrentContext context;
  const CUstream stream = make_stream();
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (const bool records : {true, false}) {
    REQUIRE_CUDA(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_RESULT(records ? cuCtxRecordEvent(nullptr, event) : cuCtxWaitEvent(nullptr, event),
                 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    CHECK_RESULT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  CHECK_CUDA(cuStreamDestroy_v2(stream));
  CHECK_CUDA(cuEventDestroy_v2(event));
}

TEST_CASE("streams of the current context belong to no green one") {
  const CurrentContext context;
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);
  REQUIRE_CUDA(cuStreamGetGreenCtx(nullptr, &green));
  CHECK(green == nullptr);
}
