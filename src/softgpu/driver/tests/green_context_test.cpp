// Green contexts: parts of the nominal multiprocessors.
#include "softgpu/driver/tests/driver_fixture.h"

namespace {

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

TEST_CASE("streams of the current context belong to no green one") {
  const CurrentContext context;
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);
  REQUIRE_CUDA(cuStreamGetGreenCtx(nullptr, &green));
  CHECK(green == nullptr);
}
