// Executable graphs: instantiation, launch, update.
#include "softgpu/driver/context.h"
#include "softgpu/driver/copy.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/graph_nodes.h"
#include "softgpu/driver/stream_selection.h"

using namespace softgpu::driver;

namespace {

CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return entry([&] {
    require(out != nullptr);
    require(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    const std::lock_guard lock(Driver::get().graph_mutex);
    const auto source = Driver::get().graphs.get(graph, CUDA_ERROR_INVALID_VALUE);
    *out = Driver::get().graph_execs.add<CUgraphExec>(std::make_shared<GraphExec>(*source, flags));
  });
}

std::shared_ptr<GraphExec> exec_of(CUgraphExec handle) {
  return Driver::get().graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE);
}

CUresult replace(CUgraphExec exec, CUgraphNode node, const std::function<Operation()>& make) {
  return entry([&] {
    const std::lock_guard lock(Driver::get().graph_mutex);
    GraphExec::Step& step = exec_of(exec)->step(reinterpret_cast<const GraphNode*>(node));
    Operation operation = make();
    require(operation.type == step.type);
    step.parameters = std::move(operation.parameters);
    step.run = std::move(operation.run);
  });
}

CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult* result) {
  return entry([&] {
    const std::lock_guard lock(Driver::get().graph_mutex);
    const auto source = Driver::get().graphs.get(graph, CUDA_ERROR_INVALID_VALUE);
    const bool same_shape = exec_of(exec)->update(*source);
    *result = same_shape ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    require(same_shape, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  });
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (phErrorNode) *phErrorNode = nullptr;
  if (logBuffer && bufferSize) *logBuffer = '\0';
  return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (!instantiateParams) return CUDA_ERROR_INVALID_VALUE;
  instantiateParams->hErrNode_out = nullptr;
  const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  return entry([&] {
    const auto stream = resolve_stream(hStream);
    const auto exec = exec_of(hGraphExec);
    require(!is_capturing(*stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    launch_graph(stream, *exec);
  });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return entry([&] {
    resolve_stream(hStream);
    exec_of(hGraphExec);  // nothing to move: the graph is already where it runs
  });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return entry([&] { Driver::get().graph_execs.take(hGraphExec, CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return entry([&] {
    require(flags != nullptr);
    *flags = exec_of(hGraphExec)->flags();
  });
}

CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int* graphId) {
  return entry([&] {
    require(graphId != nullptr);
    *graphId = exec_of(hGraphExec)->id();
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (!resultInfo) return CUDA_ERROR_INVALID_VALUE;
  *resultInfo = {};
  return update(hGraphExec, hGraph, &resultInfo->result);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  if (!updateResult_out) return CUDA_ERROR_INVALID_VALUE;
  if (hErrorNode_out) *hErrorNode_out = nullptr;
  return update(hGraphExec, hGraph, updateResult_out);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return replace(hGraphExec, hNode, [&] { return kernel_node(nodeParams); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return replace(hGraphExec, hNode, [&] {
    require(copyParams != nullptr);
    return make_copy(*copyParams);
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  return replace(hGraphExec, hNode, [&] {
    require(memsetParams != nullptr);
    return make_fill(*memsetParams);
  });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return replace(hGraphExec, hNode, [&] { return host_node(nodeParams); });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return entry([&] {
    GraphExec::Step& step = exec_of(hGraphExec)->step(reinterpret_cast<const GraphNode*>(hNode));
    require(step.type == CU_GRAPH_NODE_TYPE_KERNEL || step.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
            step.type == CU_GRAPH_NODE_TYPE_MEMSET);
    step.enabled = isEnabled != 0;
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return entry([&] {
    require(isEnabled != nullptr);
    *isEnabled = exec_of(hGraphExec)->step(reinterpret_cast<const GraphNode*>(hNode)).enabled;
  });
}
