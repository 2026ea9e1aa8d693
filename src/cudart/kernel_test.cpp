// Kernels and variables that a program registers, over the software GPU.
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "cudart/test_program.h"

using gpupool::cudart::TestProgram;

namespace {

// `fill` writes `value` to as many words as there are threads; `crash` writes to where nothing is.
constexpr const char* ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 value = 11;
.visible .entry fill(.param .u64 out)
{
  .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [value]; st.global.u32 [%rd3], %r5;
  ret;
}
.visible .entry crash()
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  mov.u64 %rd1, 64; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1;
  ret;
}
)";

// Host functions are only addresses here; they differ in what they do, or a linker could make them one.
int fill_called = 0, crash_called = 0, absent_called = 0;
void fill_on_host() {
  fill_called = 1;
}
void crash_on_host() {
  crash_called = 2;
}
void absent_on_host() {
  absent_called = 3;
}
unsigned value_on_host;

const void* address(void (*function)()) {
  return reinterpret_cast<const void*>(function);
}

struct Registered : TestProgram {
  Registered() : TestProgram(ptx) {
    kernel(address(fill_on_host), "fill");
    kernel(address(crash_on_host), "crash");
    kernel(address(absent_on_host), "absent");
    variable(&value_on_host, "value", sizeof(value_on_host));
  }
};

struct Output {
  Output() { REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(unsigned) * 64) == cudaSuccess); }
  ~Output() { cudaFree(device); }
  unsigned last() const {
    unsigned words[64] = {};
    REQUIRE(cudaMemcpy(words, device, sizeof(words), cudaMemcpyDeviceToHost) == cudaSuccess);
    return words[63];
  }
  unsigned* device = nullptr;
};

}  // namespace

TEST_CASE("a registered kernel runs, and reads the variable that was registered with it") {
  Registered program;
  Output out;
  void* arguments[] = {&out.device};
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(2), dim3(32), arguments, 0, nullptr) == cudaSuccess);
  CHECK(out.last() == 11);
  const unsigned value = 12;
  CHECK(cudaMemcpyToSymbol(&value_on_host, &value, sizeof(value), 0, cudaMemcpyHostToDevice) == cudaSuccess);
  cudaKernel_t kernel = nullptr;
  CHECK(__cudaGetKernel(&kernel, address(fill_on_host)) == cudaSuccess);
  CHECK(__cudaLaunchKernel(kernel, dim3(2), dim3(32), arguments, 0, nullptr) == cudaSuccess);
  CHECK(out.last() == 12);
  size_t size = 0;
  CHECK(cudaGetSymbolSize(&size, &value_on_host) == cudaSuccess);
  CHECK(size == sizeof(unsigned));
  CHECK(cudaMemcpyToSymbol(&value_on_host, &value, 4, 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyToSymbol(&size, &value, 4, 0, cudaMemcpyHostToDevice) == cudaErrorInvalidSymbol);
  CHECK(cudaGetLastError() == cudaErrorInvalidSymbol);
}

TEST_CASE("a launch finds its configuration although arguments of many earlier ones threw") {
  Registered program;
  Output out;
  for (int n = 0; n < 40; ++n) CHECK(__cudaPushCallConfiguration(dim3(9), dim3(9), 9, nullptr) == 0);
  CHECK(__cudaPushCallConfiguration(dim3(2), dim3(32), 0, nullptr) == 0);
  dim3 grid, block;
  size_t shared = 1;
  cudaStream_t stream = nullptr;
  REQUIRE(__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess);
  CHECK(grid.x == 2);
  CHECK(block.x == 32);
  CHECK(shared == 0);
  void* arguments[] = {&out.device};
  CHECK(cudaLaunchKernel(address(fill_on_host), grid, block, arguments, shared, stream) == cudaSuccess);
  CHECK(out.last() == 11);
}

TEST_CASE("handles of kernels stand in for host functions") {
  Registered program;
  Output out;
  void* arguments[] = {&out.device};
  cudaKernel_t kernel = nullptr;
  cudaFunction_t function = nullptr;
  REQUIRE(cudaGetKernel(&kernel, address(fill_on_host)) == cudaSuccess);
  CHECK(cudaGetFuncBySymbol(&function, address(fill_on_host)) == cudaSuccess);
  CHECK(function != nullptr);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(32);
  CHECK(cudaLaunchKernelExC(&config, kernel, arguments) == cudaSuccess);
  CHECK(out.last() == 11);
  const char* name = nullptr;
  CHECK(cudaFuncGetName(&name, address(fill_on_host)) == cudaSuccess);
  CHECK(std::string(name) == "fill");
  cudaFuncAttributes attributes{};
  CHECK(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
  CHECK(attributes.maxThreadsPerBlock > 0);
  CHECK(cudaFuncSetAttribute(address(fill_on_host), cudaFuncAttributeMaxDynamicSharedMemorySize, 60000) ==
        cudaSuccess);
  CHECK(cudaFuncGetAttributes(&attributes, address(fill_on_host)) == cudaSuccess);
  CHECK(attributes.maxDynamicSharedSizeBytes == 60000);
}

TEST_CASE("what cannot be launched is told why") {
  Output out;
  void* arguments[] = {&out.device};
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(1), dim3(1), arguments, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  Registered program;
  CHECK(cudaLaunchKernel(address(absent_on_host), dim3(1), dim3(1), arguments, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaLaunchKernel(nullptr, dim3(1), dim3(1), arguments, 0, nullptr) == cudaErrorInvalidDeviceFunction);
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(1), dim3(1025), arguments, 0, nullptr) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(0), dim3(1), arguments, 0, nullptr) ==
        cudaErrorInvalidConfiguration);
  program.unregister();
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(1), dim3(1), arguments, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  TestProgram broken("this is no PTX");
  broken.kernel(address(fill_on_host), "fill");
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(1), dim3(1), arguments, 0, nullptr) ==
        cudaErrorInvalidPtx);
  CHECK(cudaGetLastError() == cudaErrorInvalidPtx);
}

TEST_CASE("a graph made of nodes computes") {
  Registered program;
  Output out;
  void* arguments[] = {&out.device};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaGraphNode_t clear = nullptr, fill = nullptr;
  REQUIRE(cudaGraphCreate(&graph, 0) == cudaSuccess);
  cudaMemsetParams zeros{};
  zeros.dst = out.device;
  zeros.elementSize = 4;
  zeros.width = 64;
  zeros.height = 1;
  CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &zeros) == cudaSuccess);
  cudaKernelNodeParams kernel{};
  kernel.func = const_cast<void*>(address(fill_on_host));
  kernel.gridDim = dim3(2);
  kernel.blockDim = dim3(32);
  kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&fill, graph, &clear, 1, &kernel) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphLaunch(executable, nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(out.last() == 11);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a copy of a graph stays inside its variable, and goes the way its function is named after") {
  Registered program;
  Output out;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaGraphNode_t node = nullptr;
  REQUIRE(cudaGraphCreate(&graph, 0) == cudaSuccess);
  constexpr auto on_device = cudaMemcpyDeviceToDevice;
  const auto from = [&](size_t count, size_t offset, cudaMemcpyKind kind) {
    return cudaGraphAddMemcpyNodeFromSymbol(&node, graph, nullptr, 0, out.device, &value_on_host, count,
                                            offset, kind);
  };
  const auto to = [&](size_t count, size_t offset, cudaMemcpyKind kind) {
    return cudaGraphAddMemcpyNodeToSymbol(&node, graph, nullptr, 0, &value_on_host, out.device, count, offset,
                                          kind);
  };
  CHECK(from(5, 0, on_device) == cudaErrorInvalidValue);
  CHECK(from(1, 4, on_device) == cudaErrorInvalidValue);
  CHECK(from(4, ~size_t{3}, on_device) == cudaErrorInvalidValue);
  CHECK(from(4, 0, cudaMemcpyHostToDevice) == cudaErrorInvalidMemcpyDirection);
  CHECK(to(5, 0, on_device) == cudaErrorInvalidValue);
  CHECK(to(1, 4, on_device) == cudaErrorInvalidValue);
  CHECK(to(4, 0, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
  REQUIRE(from(4, 0, on_device) == cudaSuccess);
  CHECK(cudaGraphMemcpyNodeSetParamsToSymbol(node, &value_on_host, out.device, 5, 0, on_device) ==
        cudaErrorInvalidValue);
  CHECK(cudaGraphMemcpyNodeSetParamsFromSymbol(node, out.device, &value_on_host, 5, 0, on_device) ==
        cudaErrorInvalidValue);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(executable, node, &value_on_host, out.device, 5, 0,
                                                 on_device) == cudaErrorInvalidValue);
  CHECK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(executable, node, out.device, &value_on_host, 5, 0,
                                                   on_device) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("an error of the device stays until the device is reset") {
  Registered program;
  CHECK(cudaLaunchKernel(address(crash_on_host), dim3(1), dim3(1), nullptr, 0, nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, 64) == cudaErrorIllegalAddress);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
  Output out;
  void* arguments[] = {&out.device};
  CHECK(cudaLaunchKernel(address(fill_on_host), dim3(2), dim3(32), arguments, 0, nullptr) == cudaSuccess);
  CHECK(out.last() == 11);
}

TEST_CASE("a reset ends the device's error for every thread") {
  Registered program;
  CHECK(cudaLaunchKernel(address(crash_on_host), dim3(1), dim3(1), nullptr, 0, nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  std::thread([] {
    int devices = 0;
    REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
    if (devices < 2) return;
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaDeviceReset() == cudaSuccess);
  }).join();
  CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
  std::thread([] { CHECK(cudaDeviceReset() == cudaSuccess); }).join();
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
}
