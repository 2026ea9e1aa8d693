#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "driver_fixture.h"

namespace {

// Adds 1 to a word, and tells a conditional node to go on while it is below a bound.
constexpr const char* count_ptx = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count(.param .u64 word, .param .u32 step)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [step];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry count_until(.param .u64 word, .param .u32 bound, .param .u64 handle)
{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [bound]; ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    setp.lt.u32 %p1, %r1, %r2;
    selp.u32 %r3, 1, 0, %p1;
    {
    .param .b64 a; .param .b32 b;
    st.param.b64 [a], %rd2; st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
)";

struct Fixture {
  CurrentContext context;
  LoadedKernel count{count_ptx, "count"};
  CUgraph graph = nullptr;
  CUdeviceptr words = 0;

  Fixture() {
    REQUIRE_CUDA(cuGraphCreate(&graph, 0));
    REQUIRE_CUDA(cuMemAlloc_v2(&words, 64));
    REQUIRE_CUDA(cuMemsetD32_v2(words, 0, 16));
  }
  int word(int n) const {
    int value = -1;
    REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, words + 4 * static_cast<unsigned>(n), 4));
    return value;
  }
  CUgraphNode kernel(CUgraph into, CUdeviceptr address, unsigned step, std::vector<CUgraphNode> after) const {
    void* parameters[] = {&address, &step};
    CUDA_KERNEL_NODE_PARAMS_v2 params{};
    params.func = count.function;
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY =
        params.blockDimZ = 1;
    params.kernelParams = parameters;
    CUgraphNode node = nullptr;
    REQUIRE_CUDA(cuGraphAddKernelNode_v2(&node, into, after.data(), after.size(), &params));
    return node;
  }
  CUgraphExec instantiate() const {
    CUgraphExec exec = nullptr;
    REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  void run(CUgraphExec exec) const {
    REQUIRE_CUDA(cuGraphLaunch(exec, nullptr));
    REQUIRE_CUDA(cuCtxSynchronize());
  }
};

}  // namespace

TEST_CASE("what a node was made from can be read back, and changed") {
  Fixture f;
  const CUgraphNode node = f.kernel(f.graph, f.words, 3, {});
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  REQUIRE_CUDA(cuGraphKernelNodeGetParams_v2(node, &kernel));
  CHECK_EQ(kernel.func, f.count.function);
  CHECK_EQ(kernel.gridDimX, 1);
  CHECK_EQ(*static_cast<CUdeviceptr*>(kernel.kernelParams[0]), f.words);
  CHECK_EQ(*static_cast<unsigned*>(kernel.kernelParams[1]), 3);
  CUdeviceptr address = f.words + 4;
  unsigned step = 5;
  void* changed[] = {&address, &step};
  kernel.kernelParams = changed;
  REQUIRE_CUDA(cuGraphKernelNodeSetParams_v2(node, &kernel));
  CUgraphNodeParams any{};
  REQUIRE_CUDA(cuGraphNodeGetParams(node, &any));
  CHECK_EQ(any.type, CU_GRAPH_NODE_TYPE_KERNEL);
  CHECK_EQ(*static_cast<unsigned*>(any.kernel.kernelParams[1]), 5);
  CHECK_RESULT(cuGraphMemcpyNodeGetParams(node, &any.memcpy.copyParams), CUDA_ERROR_INVALID_VALUE);
  f.run(f.instantiate());
  CHECK_EQ(f.word(0), 0);
  CHECK_EQ(f.word(1), 5);
  CHECK_CUDA(cuGraphDestroyNode(node));
  CHECK_RESULT(cuGraphKernelNodeGetParams_v2(node, &kernel), CUDA_ERROR_INVALID_VALUE);  // gone
}

TEST_CASE("independent branches run at the same time, and a node after both of them") {
  Fixture f;
  CUgraphNode first = nullptr, second = nullptr;
  // Each branch waits for what the other one writes: one after the other they would never end.
  CUstreamBatchMemOpParams left[2]{}, right[2]{};
  left[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, f.words, {7}, 0, 0};
  left[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, f.words + 4, {8}, CU_STREAM_WAIT_VALUE_EQ, 0};
  right[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, f.words, {7}, CU_STREAM_WAIT_VALUE_EQ, 0};
  right[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, f.words + 4, {8}, 0, 0};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{f.context.get(), 2, left, 0};
  REQUIRE_CUDA(cuGraphAddBatchMemOpNode(&first, f.graph, nullptr, 0, &batch));
  batch.paramArray = right;
  REQUIRE_CUDA(cuGraphAddBatchMemOpNode(&second, f.graph, nullptr, 0, &batch));
  f.kernel(f.graph, f.words, 1, {first, second});
  const CUgraphExec exec = f.instantiate();
  for (int n = 0; n < 3; ++n) {
    REQUIRE_CUDA(cuMemsetD32_v2(f.words, 0, 2));
    f.run(exec);
    CHECK_EQ(f.word(0), 8);
    CHECK_EQ(f.word(1), 8);
  }
}

TEST_CASE("an atomic reduction in a stream") {
  Fixture f;
  CUstreamBatchMemOpParams add{};
  add.atomicReduction.operation = CU_STREAM_MEM_OP_ATOMIC_REDUCTION;
  add.atomicReduction.reductionOp = CU_STREAM_ATOMIC_REDUCTION_OP_ADD;
  add.atomicReduction.dataType = CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32;
  add.atomicReduction.address = f.words;
  add.atomicReduction.value = 4;
  REQUIRE_CUDA(cuStreamBatchMemOp_v2(nullptr, 1, &add, 0));
  REQUIRE_CUDA(cuStreamBatchMemOp_v2(nullptr, 1, &add, 0));
  CHECK_EQ(f.word(0), 8);
}

TEST_CASE("a child graph is a copy; its nodes can be changed in the executable graph") {
  Fixture f;
  CUgraph child = nullptr, embedded = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&child, 0));
  f.kernel(child, f.words, 1, {});
  CUgraphNode node = nullptr;
  REQUIRE_CUDA(cuGraphAddChildGraphNode(&node, f.graph, nullptr, 0, child));
  f.kernel(child, f.words, 10, {});  // not in the copy
  REQUIRE_CUDA(cuGraphChildGraphNodeGetGraph(node, &embedded));
  CHECK_RESULT(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);
  std::size_t count = 1;
  CUgraphNode inside = nullptr;
  REQUIRE_CUDA(cuGraphGetNodes(embedded, &inside, &count));
  CHECK_EQ(count, 1);
  f.kernel(f.graph, f.words, 2, {node});
  const CUgraphExec exec = f.instantiate();
  f.run(exec);
  CHECK_EQ(f.word(0), 3);
  REQUIRE_CUDA(cuGraphNodeSetEnabled(exec, inside, 0));
  f.run(exec);
  CHECK_EQ(f.word(0), 5);
  CHECK_CUDA(cuGraphDestroy(f.graph));
  CHECK_RESULT(cuGraphGetNodes(embedded, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a clone knows which node is which, and an update names the node that does not fit") {
  Fixture f;
  const CUgraphNode first = f.kernel(f.graph, f.words, 1, {});
  f.kernel(f.graph, f.words, 2, {first});
  const CUgraphExec exec = f.instantiate();
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr, extra = nullptr;
  REQUIRE_CUDA(cuGraphClone(&clone, f.graph));
  REQUIRE_CUDA(cuGraphNodeFindInClone(&twin, first, clone));
  CHECK_NE(twin, first);
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  REQUIRE_CUDA(cuGraphKernelNodeGetParams_v2(twin, &kernel));
  unsigned step = 100;
  void* changed[] = {kernel.kernelParams[0], &step};
  kernel.kernelParams = changed;
  REQUIRE_CUDA(cuGraphKernelNodeSetParams_v2(twin, &kernel));
  CUgraphExecUpdateResultInfo info{};
  REQUIRE_CUDA(cuGraphExecUpdate_v2(exec, clone, &info));
  CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  f.run(exec);
  CHECK_EQ(f.word(0), 102);
  REQUIRE_CUDA(cuGraphAddEmptyNode(&extra, clone, nullptr, 0));
  CHECK_RESULT(cuGraphExecUpdate_v2(exec, clone, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_CASE("an allocation node gives the same address for the life of its graph") {
  Fixture f;
  CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = 4096;
  CUgraphNode made = nullptr, freed = nullptr;
  REQUIRE_CUDA(cuGraphAddMemAllocNode(&made, f.graph, nullptr, 0, &wanted));
  CUDA_MEMSET_NODE_PARAMS fill{wanted.dptr, 0, 9, 4, 4, 1};
  CUgraphNode filled = nullptr, copied = nullptr;
  REQUIRE_CUDA(cuGraphAddMemsetNode(&filled, f.graph, &made, 1, &fill, f.context.get()));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = wanted.dptr;
  copy.dstDevice = f.words;
  copy.WidthInBytes = 16;
  copy.Height = copy.Depth = 1;
  REQUIRE_CUDA(cuGraphAddMemcpyNode(&copied, f.graph, &filled, 1, &copy, f.context.get()));
  SUBCASE("freed in the graph: it can be launched again and again") {
    REQUIRE_CUDA(cuGraphAddMemFreeNode(&freed, f.graph, &copied, 1, wanted.dptr));
    const CUgraphExec exec = f.instantiate();
    f.run(exec);
    f.run(exec);
    CHECK_EQ(f.word(3), 9);
  }
  SUBCASE("not freed: it outlives graph and executable graph") {
    const CUgraphExec exec = f.instantiate();
    f.run(exec);
    REQUIRE_CUDA(cuGraphExecDestroy(exec));
    REQUIRE_CUDA(cuGraphDestroy(f.graph));
    int value = 0;
    CHECK_CUDA(cuMemcpyDtoH_v2(&value, wanted.dptr, 4));
    CHECK_EQ(value, 9);
    CHECK_CUDA(cuMemFreeAsync(wanted.dptr, nullptr));
    CHECK_CUDA(cuCtxSynchronize());
    CHECK_RESULT(cuMemcpyDtoH_v2(&value, wanted.dptr, 4), CUDA_ERROR_INVALID_VALUE);
  }
  SUBCASE("freed by the program: only then may it be launched again") {
    const CUgraphExec exec = f.instantiate();
    f.run(exec);
    CHECK_RESULT(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
    cuuint64_t used = 0;
    CHECK_CUDA(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    CHECK_EQ(used, 4096);
    int value = 0;
    CHECK_CUDA(cuMemcpyDtoH_v2(&value, wanted.dptr, 4));  // lives on after the graph
    CHECK_EQ(value, 9);
    CHECK_CUDA(cuMemFreeAsync(wanted.dptr, nullptr));
    f.run(exec);
    CHECK_CUDA(cuMemFree_v2(wanted.dptr));
    CHECK_CUDA(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    CHECK_EQ(used, 0);
    CUgraphExec second = nullptr;  // one executable at a time
    CHECK_RESULT(cuGraphInstantiateWithFlags(&second, f.graph, 0), CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_CASE("a launch that is refused takes no memory into use") {
  Fixture f;
  CUDA_MEM_ALLOC_NODE_PARAMS first{}, second{};
  for (auto* const wanted : {&first, &second}) {
    wanted->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted->bytesize = 4096;
    CUgraphNode made = nullptr;
    REQUIRE_CUDA(cuGraphAddMemAllocNode(&made, f.graph, nullptr, 0, wanted));
  }
  const CUgraphExec exec = f.instantiate();
  f.run(exec);
  for (const auto& [freed, kept] : {std::pair(&first, &second), std::pair(&second, &first)}) {
    CHECK_CUDA(cuMemFree_v2(freed->dptr));
    CHECK_RESULT(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_CUDA(cuMemFree_v2(kept->dptr));
    f.run(exec);
  }
  CHECK_CUDA(cuMemFree_v2(first.dptr));
  CHECK_CUDA(cuMemFree_v2(second.dptr));
}

TEST_CASE("stream-ordered memory in a capture becomes nodes") {
  Fixture f;
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAllocAsync(&memory, 64, stream));
  REQUIRE_CUDA(cuMemsetD32Async(memory, 6, 4, stream));
  REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(f.words, memory, 16, stream));
  REQUIRE_CUDA(cuMemFreeAsync(memory, stream));
  CUgraph graph = nullptr;
  REQUIRE_CUDA(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  REQUIRE_CUDA(cuGraphLaunch(exec, stream));
  REQUIRE_CUDA(cuGraphLaunch(exec, stream));
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(f.word(3), 6);
}

TEST_CASE("conditional nodes: a loop that its own kernel ends, and a choice") {
  Fixture f;
  const LoadedKernel until(count_ptx, "count_until");
  CUgraphConditionalHandle handle = 0;
  REQUIRE_CUDA(
      cuGraphConditionalHandleCreate(&handle, f.graph, f.context.get(), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams loop{};
  loop.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  loop.conditional.handle = handle;
  loop.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  loop.conditional.size = 1;
  CUgraphNode node = nullptr, inside = nullptr;
  REQUIRE_CUDA(cuGraphAddNode_v2(&node, f.graph, nullptr, nullptr, 0, &loop));
  unsigned bound = 5;
  void* parameters[] = {&f.words, &bound, &handle};
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  kernel.func = until.function;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY =
      kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  REQUIRE_CUDA(cuGraphAddKernelNode_v2(&inside, loop.conditional.phGraph_out[0], nullptr, 0, &kernel));

  CUgraphConditionalHandle choice = 0;
  REQUIRE_CUDA(
      cuGraphConditionalHandleCreate(&choice, f.graph, f.context.get(), 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams either{};
  either.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  either.conditional.handle = choice;
  either.conditional.type = CU_GRAPH_COND_TYPE_IF;
  either.conditional.size = 2;
  CUgraphNode second = nullptr;
  REQUIRE_CUDA(cuGraphAddNode_v2(&second, f.graph, &node, nullptr, 1, &either));
  f.kernel(either.conditional.phGraph_out[0], f.words + 4, 1, {});
  f.kernel(either.conditional.phGraph_out[1], f.words + 8, 1, {});
  const CUgraphExec exec = f.instantiate();
  f.run(exec);
  CHECK_EQ(f.word(0), 5);
  CHECK_EQ(f.word(1), 0);
  CHECK_EQ(f.word(2), 1);
  f.run(exec);  // the value is 1 again at each launch: the body runs once
  CHECK_EQ(f.word(0), 6);
}

TEST_CASE("a handle of a body has its value at each launch") {
  Fixture f;
  CUgraphConditionalHandle handles[2] = {};
  CUgraph into = f.graph;
  for (CUgraphConditionalHandle& handle : handles) {
    REQUIRE_CUDA(
        cuGraphConditionalHandleCreate(&handle, into, f.context.get(), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams if_set{};
    if_set.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    if_set.conditional.handle = handle;
    if_set.conditional.type = CU_GRAPH_COND_TYPE_IF;
    if_set.conditional.size = 1;
    CUgraphNode node = nullptr;
    REQUIRE_CUDA(cuGraphAddNode_v2(&node, into, nullptr, nullptr, 0, &if_set));
    into = if_set.conditional.phGraph_out[0];
  }
  f.kernel(into, f.words, 1, {});
  const CUgraphExec exec = f.instantiate();
  f.run(exec);
  f.run(exec);
  CHECK_EQ(f.word(0), 2);
}

TEST_CASE("an updated executable graph chooses by the new graph's value") {
  Fixture f;
  const auto choose = [&](CUgraph graph, unsigned value) {
    CUgraphConditionalHandle choice = 0;
    REQUIRE_CUDA(
        cuGraphConditionalHandleCreate(&choice, graph, f.context.get(), value, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams either{};
    either.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    either.conditional.handle = choice;
    either.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
    either.conditional.size = 2;
    CUgraphNode node = nullptr;
    REQUIRE_CUDA(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &either));
    f.kernel(either.conditional.phGraph_out[0], f.words, 1, {});
    f.kernel(either.conditional.phGraph_out[1], f.words + 4, 1, {});
  };
  choose(f.graph, 0);
  CUgraph other = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&other, 0));
  choose(other, 1);
  const CUgraphExec exec = f.instantiate();
  f.run(exec);
  CUgraphExecUpdateResultInfo info{};
  REQUIRE_CUDA(cuGraphExecUpdate_v2(exec, other, &info));
  f.run(exec);
  CHECK_EQ(f.word(0), 1);
  CHECK_EQ(f.word(1), 1);
}

TEST_CASE("events in graphs order them with streams") {
  Fixture f;
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const CUgraphNode first = f.kernel(f.graph, f.words, 4, {});
  CUgraphNode recorded = nullptr;
  REQUIRE_CUDA(cuGraphAddEventRecordNode(&recorded, f.graph, &first, 1, event));
  CUevent seen = nullptr;
  CHECK_CUDA(cuGraphEventRecordNodeGetEvent(recorded, &seen));
  CHECK_EQ(seen, event);
  const CUgraphExec exec = f.instantiate();
  CUstream stream = nullptr, other = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuGraphLaunch(exec, stream));
  REQUIRE_CUDA(cuStreamWaitEvent(other, event, 0));
  REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(f.words + 4, f.words, 4, other));
  REQUIRE_CUDA(cuStreamSynchronize(other));
  CHECK_EQ(f.word(1), 4);
}

TEST_CASE("an event whose node a failed launch did not reach ends with the launch") {
  Fixture f;
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const CUgraphNode faulty = f.kernel(f.graph, 0, 1, {});
  CUgraphNode recorded = nullptr;
  REQUIRE_CUDA(cuGraphAddEventRecordNode(&recorded, f.graph, &faulty, 1, event));
  REQUIRE_CUDA(cuGraphLaunch(f.instantiate(), nullptr));
  CHECK_RESULT(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a fault in one branch ends the others, which wait for what it would have done") {
  Fixture f;
  const auto add = [&](const CUstreamBatchMemOpParams& entry, std::vector<CUgraphNode> after) {
    CUstreamBatchMemOpParams entries[] = {entry};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{f.context.get(), 1, entries, 0};
    CUgraphNode node = nullptr;
    REQUIRE_CUDA(cuGraphAddBatchMemOpNode(&node, f.graph, after.data(), after.size(), &batch));
    return node;
  };
  const auto write = [&](int word, cuuint32_t value, std::vector<CUgraphNode> after) {
    CUstreamBatchMemOpParams entry{};
    entry.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, f.words + 4 * word, {value}, 0, 0};
    return add(entry, std::move(after));
  };
  const auto wait = [&](int word, cuuint32_t value, std::vector<CUgraphNode> after) {
    CUstreamBatchMemOpParams entry{};
    entry.waitValue = {
        CU_STREAM_MEM_OP_WAIT_VALUE_32, f.words + 4 * word, {value}, CU_STREAM_WAIT_VALUE_EQ, 0};
    return add(entry, std::move(after));
  };
  const CUgraphNode begun = write(0, 1, {});
  const CUgraphNode faulty = f.kernel(f.graph, 0, 1, {wait(0, 1, {})});
  SUBCASE("a value") {
    write(1, 1, {faulty});
    wait(1, 1, {begun});
  }
  SUBCASE("an event") {
    CUevent event = nullptr;
    CUgraphNode records = nullptr, waits = nullptr;
    REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    REQUIRE_CUDA(cuGraphAddEventRecordNode(&records, f.graph, &faulty, 1, event));
    REQUIRE_CUDA(cuGraphAddEventWaitNode(&waits, f.graph, &begun, 1, event));
  }
  REQUIRE_CUDA(cuGraphLaunch(f.instantiate(), nullptr));
  CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("launches of one executable graph follow each other, whatever their streams") {
  Fixture f;
  struct Visitors {
    std::atomic<int> inside{0}, most{0};
  } visitors;
  CUDA_HOST_NODE_PARAMS visit{};
  visit.userData = &visitors;
  visit.fn = [](void* data) {
    Visitors& all = *static_cast<Visitors*>(data);
    all.most = std::max<int>(all.most, ++all.inside);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --all.inside;
  };
  CUgraphNode node = nullptr;
  REQUIRE_CUDA(cuGraphAddHostNode(&node, f.graph, nullptr, 0, &visit));
  const CUgraphExec exec = f.instantiate();
  const CUstream streams[] = {make_stream(), make_stream(), make_stream()};
  for (int n = 0; n < 4; ++n) {
    for (const CUstream stream : streams) REQUIRE_CUDA(cuGraphLaunch(exec, stream));
  }
  REQUIRE_CUDA(cuCtxSynchronize());
  CHECK_EQ(visitors.most.load(), 1);
}

TEST_CASE("a cooperative kernel node stays one when it gets new parameters") {
  Fixture f;
  const CUgraphNode node = f.kernel(f.graph, f.words, 1, {});
  CUkernelNodeAttrValue cooperative{};
  cooperative.cooperative = 1;
  REQUIRE_CUDA(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
  const CUgraphExec exec = f.instantiate();
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  REQUIRE_CUDA(cuGraphKernelNodeGetParams_v2(node, &kernel));
  unsigned step = 2;
  void* parameters[] = {&f.words, &step};
  kernel.kernelParams = parameters;
  CHECK_CUDA(cuGraphKernelNodeSetParams_v2(node, &kernel));
  CHECK_CUDA(cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel));
  // More blocks than the device holds at the same time: for a cooperative kernel too many.
  kernel.gridDimX = 1 << 20;
  CHECK_RESULT(cuGraphKernelNodeSetParams_v2(node, &kernel), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK_RESULT(cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel),
               CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  cooperative.cooperative = 0;
  REQUIRE_CUDA(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
  CHECK_CUDA(cuGraphKernelNodeSetParams_v2(node, &kernel));
}

TEST_CASE("a capture can go into a graph that is there, behind its nodes") {
  Fixture f;
  const CUgraphNode first = f.kernel(f.graph, f.words, 1, {});
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(
      cuStreamBeginCaptureToGraph(stream, f.graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(f.words + 4, f.words, 4, stream));
  CUgraph ended = nullptr;
  REQUIRE_CUDA(cuStreamEndCapture(stream, &ended));
  CHECK_EQ(ended, f.graph);
  std::size_t edges = 0;
  CHECK_CUDA(cuGraphGetEdges_v2(f.graph, nullptr, nullptr, nullptr, &edges));
  CHECK_EQ(edges, 1);
  f.run(f.instantiate());
  CHECK_EQ(f.word(1), 1);
}

TEST_CASE("nodes of other graphs, cycles and repeated dependencies are refused") {
  Fixture f;
  CUgraph other = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&other, 0));
  CUgraphNode foreign = nullptr, node = nullptr;
  REQUIRE_CUDA(cuGraphAddEmptyNode(&foreign, other, nullptr, 0));
  CHECK_RESULT(cuGraphAddEmptyNode(&node, f.graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(cuGraphAddEmptyNode(&node, f.graph, nullptr, 0));
  const CUgraphNode twice[] = {node, node};
  CHECK_RESULT(cuGraphAddEmptyNode(&node, f.graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuGraphDestroy(other));
  CUgraphNodeType type{};
  CHECK_RESULT(cuGraphNodeGetType(foreign, &type), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("stream attributes are kept and copied") {
  CurrentContext context;
  CUstream a = nullptr, b = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&a, 0));
  REQUIRE_CUDA(cuStreamCreate(&b, 0));
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  CHECK_CUDA(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CHECK_CUDA(cuStreamCopyAttributes(b, a));
  value = {};
  CHECK_CUDA(cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CHECK_EQ(value.syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
  CHECK_RESULT(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a list of nodes without room is refused") {
  CurrentContext context;
  CUgraph graph = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr, second = nullptr, out = nullptr;
  REQUIRE_CUDA(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  REQUIRE_CUDA(cuGraphAddEmptyNode(&second, graph, &first, 1));
  std::size_t none = 0;
  CHECK_RESULT(cuGraphGetNodes(graph, &out, &none), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuGraphGetRootNodes(graph, &out, &none), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuGraphGetEdges_v2(graph, &out, &out, nullptr, &none), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuGraphNodeGetDependencies_v2(second, &out, nullptr, &none), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuGraphNodeGetDependentNodes_v2(first, &out, nullptr, &none), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuGraphGetNodes(graph, nullptr, &none));
  CHECK_EQ(none, 2);
  CHECK_CUDA(cuGraphDestroy(graph));
}

TEST_CASE("what a kernel node gave as its parameters can be set again and again") {
  CurrentContext context;
  const LoadedKernel kernel(saxpy_ptx, "saxpy");
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 64));
  float a = 1;
  int count = 4;
  void* parameters[] = {&memory, &memory, &memory, &a, &count};
  CUDA_KERNEL_NODE_PARAMS given{};
  given.func = kernel.function;
  given.gridDimX = given.gridDimY = given.gridDimZ = given.blockDimX = given.blockDimY = given.blockDimZ = 1;
  given.kernelParams = parameters;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  REQUIRE_CUDA(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &given));
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUDA_KERNEL_NODE_PARAMS own{};
  REQUIRE_CUDA(cuGraphKernelNodeGetParams_v2(node, &own));
  CHECK_CUDA(cuGraphKernelNodeSetParams_v2(node, &own));
  CHECK_CUDA(cuGraphExecKernelNodeSetParams_v2(exec, node, &own));
  CHECK_EQ(*static_cast<CUdeviceptr*>(own.kernelParams[0]), memory);
  CHECK_CUDA(cuGraphExecDestroy(exec));
  CHECK_CUDA(cuGraphDestroy(graph));
}
