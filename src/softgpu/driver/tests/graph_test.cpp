#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "driver_fixture.h"

namespace {

constexpr const char* increment_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry increment(.param .u64 word)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
)";

int read_word(CUdeviceptr address) {
  int value = -1;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, address, 4));
  return value;
}

}  // namespace

TEST_CASE("captured work is not executed, and then as often as its graph is launched") {
  CurrentContext context;
  const LoadedKernel kernel(increment_ptx, "increment");
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr words = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&words, 8));
  REQUIRE_CUDA(cuMemsetD32_v2(words, 0, 2));
  CUstreamCaptureStatus status;
  REQUIRE_CUDA(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_CUDA(cuStreamIsCapturing(stream, &status));
  CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE_CUDA(launch(kernel.function, 1, 1, stream, {&words}));
  REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(words + 4, words, 4, stream));
  CUgraph graph = nullptr;
  REQUIRE_CUDA(cuStreamEndCapture(stream, &graph));
  CHECK_CUDA(cuStreamIsCapturing(stream, &status));
  CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_EQ(read_word(words), 0);

  std::size_t count = 0;
  CHECK_CUDA(cuGraphGetNodes(graph, nullptr, &count));
  CHECK_EQ(count, 2);
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CUDA(cuGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) REQUIRE_CUDA(cuGraphLaunch(exec, stream));
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(read_word(words), 3);
  CHECK_EQ(read_word(words + 4), 3);
  CHECK_CUDA(cuGraphExecDestroy(exec));
  CHECK_RESULT(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a second stream joins a capture through an event and must be joined back") {
  CurrentContext context;
  CUstream origin = nullptr, side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  REQUIRE_CUDA(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr words = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&words, 8));
  const auto capture = [&](bool joined) {
    CUgraph graph = nullptr;
    REQUIRE_CUDA(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    REQUIRE_CUDA(cuMemsetD32Async(words, 1, 1, origin));
    REQUIRE_CUDA(cuEventRecord(fork, origin));
    REQUIRE_CUDA(cuStreamWaitEvent(side, fork, 0));
    REQUIRE_CUDA(cuMemcpyDtoDAsync_v2(words + 4, words, 4, side));
    if (joined) {
      REQUIRE_CUDA(cuEventRecord(join, side));
      REQUIRE_CUDA(cuStreamWaitEvent(origin, join, 0));
    }
    const CUresult result = cuStreamEndCapture(origin, &graph);
    CHECK_RESULT(result, joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    return graph;
  };
  capture(false);
  const CUgraph graph = capture(true);
  std::size_t edges = 0;
  CHECK_CUDA(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  CHECK_EQ(edges, 1);
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  REQUIRE_CUDA(cuGraphLaunch(exec, side));
  REQUIRE_CUDA(cuStreamSynchronize(side));
  CHECK_EQ(read_word(words + 4), 1);
}

TEST_CASE("a graph can be built by hand, and its nodes changed after instantiation") {
  CurrentContext context;
  CUdeviceptr words = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&words, 8));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = words;
  fill.elementSize = 4;
  fill.width = 2;
  fill.height = 1;
  fill.value = 5;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr, last = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  REQUIRE_CUDA(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context.get()));
  REQUIRE_CUDA(cuGraphAddEmptyNode(&last, graph, &node, 1));
  CHECK_RESULT(cuGraphAddDependencies(graph, &node, &last, 1), CUDA_ERROR_INVALID_VALUE);  // there already
  REQUIRE_CUDA(cuGraphAddDependencies(graph, &last, &node, 1));
  CUgraphExec exec = nullptr;
  CHECK_RESULT(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);  // a cycle
  REQUIRE_CUDA(cuGraphRemoveDependencies(graph, &last, &node, 1));
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  REQUIRE_CUDA(cuGraphLaunch(exec, nullptr));
  CHECK_EQ(read_word(words + 4), 5);
  fill.value = 6;
  REQUIRE_CUDA(cuGraphExecMemsetNodeSetParams(exec, node, &fill, context.get()));
  REQUIRE_CUDA(cuGraphLaunch(exec, nullptr));
  CHECK_EQ(read_word(words), 6);
}

TEST_CASE("a user object lives until the last graph that holds it is gone") {
  REQUIRE_CUDA(cuInit(0));
  CurrentContext context;
  int destroyed = 0;
  const auto destroy = [](void* data) { ++*static_cast<int*>(data); };
  CUuserObject object = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  REQUIRE_CUDA(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CUDA(cuGraphDestroy(graph));
  CHECK_EQ(destroyed, 0);
  CHECK_CUDA(cuGraphExecDestroy(exec));
  CHECK_EQ(destroyed, 1);
  CHECK_RESULT(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an update takes over the user objects of the new graph") {
  CurrentContext context;
  int destroyed[2] = {};
  const auto destroy = [](void* data) { ++*static_cast<int*>(data); };
  CUgraph graphs[2] = {};
  for (int n = 0; n < 2; ++n) {
    CUuserObject object = nullptr;
    REQUIRE_CUDA(cuUserObjectCreate(&object, &destroyed[n], destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    REQUIRE_CUDA(cuGraphCreate(&graphs[n], 0));
    CHECK_RESULT(cuGraphRetainUserObject(graphs[n], object, 2, CU_GRAPH_USER_OBJECT_MOVE),
                 CUDA_ERROR_INVALID_VALUE);  // more than there are
    REQUIRE_CUDA(cuGraphRetainUserObject(graphs[n], object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  }
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graphs[0], 0));
  CHECK_CUDA(cuGraphDestroy(graphs[0]));
  CUgraphExecUpdateResultInfo info{};
  REQUIRE_CUDA(cuGraphExecUpdate_v2(exec, graphs[1], &info));
  CHECK_CUDA(cuGraphDestroy(graphs[1]));
  CHECK_EQ(destroyed[0], 1);
  CHECK_EQ(destroyed[1], 0);
  CHECK_CUDA(cuGraphExecDestroy(exec));
  CHECK_EQ(destroyed[1], 1);
}

TEST_CASE("a user object lives until the last launch that uses it is over") {
  CurrentContext context;
  std::atomic<bool> destroyed{false}, may_end{false};
  CUuserObject object = nullptr;
  REQUIRE_CUDA(cuUserObjectCreate(
      &object, &destroyed, [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; }, 1,
      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUDA_HOST_NODE_PARAMS wait{};
  wait.userData = &may_end;
  wait.fn = [](void* data) {
    const auto& end = *static_cast<std::atomic<bool>*>(data);
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  REQUIRE_CUDA(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  REQUIRE_CUDA(cuGraphAddHostNode(&node, graph, nullptr, 0, &wait));
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  REQUIRE_CUDA(cuGraphLaunch(exec, nullptr));
  CHECK_CUDA(cuGraphDestroy(graph));
  CHECK_CUDA(cuGraphExecDestroy(exec));
  CHECK(!destroyed);
  may_end = true;
  CHECK_CUDA(cuCtxSynchronize());
  CHECK(destroyed);
}

TEST_CASE("the end of a user object may wait for a thread that uses graphs") {
  CurrentContext context;
  int destroyed = 0;
  // Such a thread holds a lock, of an interpreter say, that the end of the object needs.
  const auto destroy = [](void* data) {
    std::thread([] {
      CUgraph graph = nullptr;
      CHECK_CUDA(cuGraphCreate(&graph, 0));
      CHECK_CUDA(cuGraphDestroy(graph));
    }).join();
    ++*static_cast<int*>(data);
  };
  CUuserObject object = nullptr;
  CUgraph graph = nullptr, child = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE_CUDA(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  REQUIRE_CUDA(cuGraphCreate(&graph, 0));
  SUBCASE("of a graph") {
    REQUIRE_CUDA(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_CUDA(cuGraphDestroy(graph));
  }
  SUBCASE("of an executable graph") {
    REQUIRE_CUDA(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    REQUIRE_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_CUDA(cuGraphDestroy(graph));
    CHECK_CUDA(cuGraphExecDestroy(exec));
  }
  SUBCASE("of a child graph") {
    REQUIRE_CUDA(cuGraphCreate(&child, 0));
    REQUIRE_CUDA(cuGraphRetainUserObject(child, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    REQUIRE_CUDA(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
    CHECK_CUDA(cuGraphDestroy(child));
    CHECK_CUDA(cuGraphDestroyNode(node));
  }
  SUBCASE("that the program takes from its graph") {
    REQUIRE_CUDA(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_CUDA(cuGraphReleaseUserObject(graph, object, 1));
  }
  CHECK_EQ(destroyed, 1);
  CHECK_RESULT(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("what cannot be captured spoils the capture, in every mode") {
  CurrentContext context;
  CUcontext current = nullptr;
  REQUIRE_CUDA(cuCtxGetCurrent(&current));
  CUstream stream = nullptr, joined = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, 0));
  const std::function<CUresult()> forbidden[] = {
      [&] { return cuStreamSynchronize(stream); },
      [&] { return cuStreamQuery(stream); },
      [&] { return cuStreamQuery(joined); },
      [&] { return cuCtxSynchronize(); },
      [&] { return cuCtxSynchronize_v2(current); },
      [&] { return cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 0); },
  };
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    auto capture = [&](const auto& call, CUresult expected) {
      REQUIRE_CUDA(cuStreamBeginCapture_v2(stream, mode));
      REQUIRE_CUDA(cuEventRecord(event, stream));
      REQUIRE_CUDA(cuStreamWaitEvent(joined, event, 0));
      REQUIRE_CUDA(cuEventRecord(event, joined));
      REQUIRE_CUDA(cuStreamWaitEvent(stream, event, 0));
      CHECK_EQ(call(), expected);
      CUstreamCaptureStatus status;
      CHECK_CUDA(cuStreamIsCapturing(stream, &status));
      CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
      CUgraph graph = nullptr;
      CHECK_RESULT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      CHECK(graph == nullptr);
      CHECK_CUDA(cuCtxSynchronize());
    };
    for (const auto& call : forbidden) capture(call, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    capture([&] { return cuEventQuery(event); }, CUDA_ERROR_CAPTURED_EVENT);
    capture([&] { return cuEventSynchronize(event); }, CUDA_ERROR_CAPTURED_EVENT);
  }
}

TEST_CASE("a graph cannot be moved into itself") {
  const CurrentContext context;
  CUgraph outer = nullptr, inner = nullptr;
  REQUIRE_CUDA(cuGraphCreate(&outer, 0));
  REQUIRE_CUDA(cuGraphCreate(&inner, 0));
  const auto move = [](CUgraph into, CUgraph child) {
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
    parameters.graph.graph = child;
    parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CUgraphNode node = nullptr;
    return cuGraphAddNode_v2(&node, into, nullptr, nullptr, 0, &parameters);
  };
  CHECK_RESULT(move(outer, outer), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(move(outer, inner));
  CHECK_RESULT(move(inner, outer), CUDA_ERROR_INVALID_VALUE);  // which owns it
  // Refused, it is as it was.
  CUgraphExec executable = nullptr;
  REQUIRE_CUDA(cuGraphInstantiateWithFlags(&executable, outer, 0));
  CHECK_CUDA(cuGraphExecDestroy(executable));
  CHECK_CUDA(cuGraphDestroy(outer));
}
