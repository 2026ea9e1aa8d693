// Executable graphs: instantiation, launch, update; memory of graphs.
#include "softgpu/driver/api/graph_entry.h"
#include "softgpu/driver/graph/memory.h"
#include "softgpu/driver/graph/operation.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return graph_entry([&] {
    require(out != nullptr);
    require(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    const auto source = graph_of(graph);
    require(!source->embedded);
    *out = registry<GraphExec>().add<CUgraphExec>(std::make_shared<GraphExec>(*source, flags));
  });
}

CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo& info) {
  return graph_entry([&] {
    GraphNode* culprit = nullptr;
    info.result = exec_of(exec)->update(*graph_of(graph), culprit);
    info.errorNode = handle_of(culprit);
    require(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
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
    refuse_in_capture(*stream);
    exec->launch(stream);
  });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return entry([&] {
    resolve_stream(hStream);
    exec_of(hGraphExec);  // nothing to move: the graph is already where it runs
  });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return graph_entry([&] { registry<GraphExec>().take(hGraphExec, CUDA_ERROR_INVALID_VALUE); });
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
  return update(hGraphExec, hGraph, *resultInfo);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  if (!updateResult_out) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = update(hGraphExec, hGraph, info);
  if (hErrorNode_out) *hErrorNode_out = info.errorNode;
  *updateResult_out = info.result;
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return graph_entry([&] {
    exec_of(hGraphExec)->change(*node_of(hNode), [&](GraphPlan::Step& step) {
      require(step.type == CU_GRAPH_NODE_TYPE_KERNEL || step.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
              step.type == CU_GRAPH_NODE_TYPE_MEMSET);
      step.enabled = isEnabled != 0;
    });
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return graph_entry([&] {
    require(isEnabled != nullptr);
    exec_of(hGraphExec)->read(*node_of(hNode), [&](const GraphPlan::Step& step) {
      *isEnabled = step.enabled;
    });
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return entry([&] { Driver::get().device(device); });  // nothing is kept back
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return entry([&] {
    require(value != nullptr);
    *static_cast<cuuint64_t*>(value) = graph_memory_attribute(Driver::get().device(device), attr);
  });
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return entry([&] {
    require(value != nullptr && *static_cast<const cuuint64_t*>(value) == 0);  // can only be reset
    reset_graph_memory_attribute(Driver::get().device(device), attr);
  });
}
