// Work of different streams happens at the same time: each of these would wait for ever if it did not.
#include <chrono>
#include <thread>

#include "driver_fixture.h"

namespace {

// Every block raises its flag and waits until another one is up.
constexpr const char* meet_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry meet(.param .u64 mine, .param .u64 other)
{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [other];
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%rd1], %r1;
AGAIN:
    ld.volatile.global.u32 %r1, [%rd2];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
)";

class Flags {
 public:
  Flags() {
    REQUIRE_CUDA(cuMemAlloc_v2(&memory_, 256));
    REQUIRE_CUDA(cuMemsetD8_v2(memory_, 0, 256));
  }
  ~Flags() { cuMemFree_v2(memory_); }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
  CUdeviceptr at(unsigned index) const { return memory_ + 4 * index; }

 private:
  CUdeviceptr memory_ = 0;
};

CUstream stream_of(int priority) {
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
  return stream;
}

CUevent make_event() {
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

float elapsed(CUevent from, CUevent to) {
  float milliseconds = -1;
  REQUIRE_CUDA(cuEventElapsedTime_v2(&milliseconds, from, to));
  return milliseconds;
}

}  // namespace

TEST_CASE("kernels of two streams run at the same time") {
  CurrentContext context;
  const LoadedKernel kernel(meet_ptx, "meet");
  const Flags flags;
  CUdeviceptr first = flags.at(0), second = flags.at(1);
  const CUstream streams[] = {make_stream(), make_stream()};
  REQUIRE_CUDA(launch(kernel.function, 1, 32, streams[0], {&first, &second}));
  REQUIRE_CUDA(launch(kernel.function, 1, 32, streams[1], {&second, &first}));
  for (const CUstream stream : streams) CHECK_CUDA(cuStreamSynchronize(stream));
}

TEST_CASE("a large grid that waits leaves room for the kernel that it waits for, whatever their priorities") {
  CurrentContext context;
  const LoadedKernel kernel(meet_ptx, "meet");
  const Flags flags;
  CUdeviceptr first = flags.at(0), second = flags.at(1);
  int least = 0, greatest = 0;
  REQUIRE_CUDA(cuCtxGetStreamPriorityRange(&least, &greatest));
  const CUstream large = stream_of(greatest), small = stream_of(least);
  REQUIRE_CUDA(launch(kernel.function, 64, 128, large, {&first, &second}));
  REQUIRE_CUDA(launch(kernel.function, 1, 1, small, {&second, &first}));
  CHECK_CUDA(cuStreamSynchronize(large));
  CHECK_CUDA(cuStreamSynchronize(small));
}

TEST_CASE("a copy and a fill of another stream happen while a kernel waits for them") {
  CurrentContext context;
  const LoadedKernel kernel(meet_ptx, "meet");
  const Flags flags;
  CUdeviceptr raised = flags.at(0), copied = flags.at(1), filled = flags.at(2), seen = flags.at(3);
  const CUstream working = make_stream(), copying = make_stream();
  REQUIRE_CUDA(launch(kernel.function, 1, 1, working, {&raised, &copied}));
  REQUIRE_CUDA(launch(kernel.function, 1, 1, working, {&seen, &filled}));
  void* pinned = nullptr;
  REQUIRE_CUDA(cuMemHostAlloc(&pinned, 4, 0));
  *static_cast<unsigned*>(pinned) = 1;
  REQUIRE_CUDA(cuMemcpyHtoDAsync_v2(copied, pinned, 4, copying));
  REQUIRE_CUDA(cuStreamSynchronize(copying));
  REQUIRE_CUDA(cuMemsetD32Async(filled, 1, 1, copying));
  CHECK_CUDA(cuStreamSynchronize(working));
  CHECK_CUDA(cuMemFreeHost(pinned));
}

TEST_CASE("branches of a graph run at the same time") {
  CurrentContext context;
  const LoadedKernel kernel(meet_ptx, "meet");
  const Flags flags;
  CUdeviceptr first = flags.at(0), second = flags.at(1);
  CUgraph graph = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  for (const bool turned : {false, true}) {
    void* parameters[] = {turned ? &second : &first, turned ? &first : &second};
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = kernel.function;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = 32;
    node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    CUgraphNode made = nullptr;
    REQUIRE_CUDA(cuGraphAddKernelNode_v2(&made, graph, nullptr, 0, &node));
  }
  CUgraphExec executable = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
  const CUstream stream = make_stream();
  REQUIRE_CUDA(cuGraphLaunch(executable, stream));
  CHECK_CUDA(cuStreamSynchronize(stream));
  CHECK_CUDA(cuGraphExecDestroy(executable));
  CHECK_CUDA(cuGraphDestroy(graph));
}

TEST_CASE("the time between two events is that of the work between them") {
  CurrentContext context;
  const LoadedKernel kernel(wait_ptx, "wait_for");
  const Flags flags;
  CUdeviceptr first = flags.at(0), second = flags.at(1);
  const CUstream stream = make_stream(), other = stream_of(0);
  const CUevent before = make_event(), middle = make_event(), after = make_event(), elsewhere = make_event();
  const auto lets_go = [&](CUdeviceptr flag, int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    REQUIRE_CUDA(cuMemsetD32Async(flag, 1, 1, other));
  };
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE_CUDA(cuEventRecord(before, stream));
  REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&first}));
  REQUIRE_CUDA(cuEventRecord(middle, stream));
  REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&second}));
  REQUIRE_CUDA(cuEventRecord(after, stream));
  REQUIRE_CUDA(cuEventSynchronize(before));
  REQUIRE_CUDA(cuEventRecord(elsewhere, other));  // waits for nothing
  REQUIRE_CUDA(cuEventSynchronize(elsewhere));
  lets_go(first, 30);
  REQUIRE_CUDA(cuEventSynchronize(middle));
  lets_go(second, 20);
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  const float wall =
      std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - begin).count();
  CHECK_GE(elapsed(before, middle), 30.0F);
  CHECK_GE(elapsed(middle, after), 20.0F);
  CHECK_LE(elapsed(before, after), wall);
  CHECK_EQ(elapsed(before, middle) + elapsed(middle, after),
           doctest::Approx(elapsed(before, after)).epsilon(0.001));
  CHECK_LT(elapsed(before, elsewhere), elapsed(before, middle));
  CHECK_LT(elapsed(after, before), 0.0F);
}
