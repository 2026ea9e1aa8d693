#include <thread>

#include "driver_fixture.h"

namespace {

// Allocates a MiB in the kernel and keeps it.
constexpr const char* keep_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b64 block) malloc(.param .b64 size);
.visible .entry keep(.param .u64 out)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, 1048576;
    {
        .param .b64 size; .param .b64 block;
        st.param.b64 [size], %rd2;
        call.uni (block), malloc, (size);
        ld.param.b64 %rd2, [block];
    }
    st.global.u64 [%rd1], %rd2;
    ret;
}
)";

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cuMemGetInfo_v2(&free, &total));
  return free;
}

}  // namespace

TEST_CASE("contexts form a stack per thread") {
  REQUIRE_CUDA(cuInit(0));
  CurrentContext outer;
  CUcontext current = nullptr;
  {
    CurrentContext inner(1);
    CHECK_CUDA(cuCtxGetCurrent(&current));
    CHECK_EQ(current, inner.get());
    CUdevice device = -1;
    CHECK_CUDA(cuCtxGetDevice(&device));
    CHECK_EQ(device, 1);
  }
  CHECK_CUDA(cuCtxGetCurrent(&current));
  CHECK_EQ(current, outer.get());
  std::thread([] {
    CUcontext elsewhere = reinterpret_cast<CUcontext>(1);
    CHECK_CUDA(cuCtxGetCurrent(&elsewhere));
    CHECK_EQ(elsewhere, nullptr);
    CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_CASE("the primary context is one for all its users and ends with the last") {
  REQUIRE_CUDA(cuInit(0));
  CUcontext first = nullptr, second = nullptr;
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&first, 0));
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&second, 0));
  CHECK_EQ(first, second);
  unsigned flags = 0;
  int active = 0;
  CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK_EQ(active, 1);
  CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK_EQ(active, 0);
  CHECK_RESULT(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a reset of the primary context releases it for nobody") {
  REQUIRE_CUDA(cuInit(0));
  CUcontext context = nullptr;
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  const auto is_active = [] {
    unsigned flags = 0;
    int active = 0;
    CHECK_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
    return active != 0;
  };
  CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0));
  CHECK(!is_active());
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(is_active());
  CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(is_active());
  CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(!is_active());
  CHECK_RESULT(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("the end of a context frees its memory and kills its handles") {
  CurrentContext other;  // keeps the queries below possible
  std::size_t before = 0, after = 0, total = 0;
  CHECK_CUDA(cuMemGetInfo_v2(&before, &total));
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  {
    CurrentContext context;
    REQUIRE_CUDA(cuMemAlloc_v2(&memory, 1 << 20));
    REQUIRE_CUDA(cuStreamCreate(&stream, 0));
    REQUIRE_CUDA(cuEventCreate(&event, 0));
  }
  CHECK_CUDA(cuMemGetInfo_v2(&after, &total));
  CHECK_EQ(before, after);
  CHECK_RESULT(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(cuEventSynchronize(event), CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(cuMemcpyDtoH_v2(&total, memory, 8), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the end of a context frees what its kernels allocated and kept") {
  CurrentContext other;
  const std::size_t before = free_memory();
  {
    CurrentContext context;
    const LoadedKernel kernel(keep_ptx, "keep");
    CUdeviceptr out = 0, block = 0;
    REQUIRE_CUDA(cuMemAlloc_v2(&out, 8));
    REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&out}));
    REQUIRE_CUDA(cuMemcpyDtoH_v2(&block, out, 8));
    CHECK_NE(block, 0);
    CHECK_LE(free_memory(), before - (std::size_t{1} << 20));
  }
  CHECK_EQ(free_memory(), before);
}

TEST_CASE("a module that outlives its context in a graph frees nothing of the next context") {
  CUgraph graph = nullptr;
  CUdeviceptr variable = 0;
  std::size_t size = 0;
  REQUIRE_CUDA(cuInit(0));
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  {
    CurrentContext context;
    const LoadedKernel kernel(saxpy_ptx, "saxpy");
    REQUIRE_CUDA(cuModuleGetGlobal_v2(&variable, &size, kernel.module, "launches"));
    CUdeviceptr memory = 0;
    float a = 1;
    int count = 0;
    void* parameters[] = {&memory, &memory, &memory, &a, &count};
    CUDA_KERNEL_NODE_PARAMS given{};
    given.func = kernel.function;
    given.gridDimX = given.gridDimY = given.gridDimZ = given.blockDimX = given.blockDimY = given.blockDimZ =
        1;
    given.kernelParams = parameters;
    CUgraphNode node = nullptr;
    REQUIRE_CUDA(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &given));
  }
  CurrentContext next;
  CUdeviceptr memory = 0;
  for (int n = 0; n < 1000 && memory != variable; ++n) REQUIRE_CUDA(cuMemAlloc_v2(&memory, size));
  REQUIRE_EQ(memory, variable);
  CHECK_CUDA(cuGraphDestroy(graph));
  CHECK_CUDA(cuMemFree_v2(memory));
}

TEST_CASE("limits can be set within reason") {
  CurrentContext context;
  std::size_t value = 0;
  CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, std::size_t{16} << 20));
  CHECK_CUDA(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
  CHECK_EQ(value, std::size_t{16} << 20);
  CHECK_RESULT(cuCtxGetLimit(&value, static_cast<CUlimit>(99)), CUDA_ERROR_UNSUPPORTED_LIMIT);
}
