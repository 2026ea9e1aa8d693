// Executable graphs.
#include <cuda.h>

#include <cstring>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/graph_store.h"
#include "client/progress/host_functions.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuGraphInstantiate
#undef cuGraphExecUpdate

namespace {

using wire::Kind;

/// Nodes of a graph, and of those inside it, that call functions of the program.
CUresult count_host_nodes(std::uint64_t graph, int& out) {
  if (const CUresult bad = complete_graph(graph); bad != CUDA_SUCCESS) return bad;
  GraphStore& store = graph_store();
  std::vector<CUgraphNode> children;
  {
    const MutexLock lock(store.mutex);
    for (const std::uint64_t node : store.graphs[graph].nodes) {
      const CUgraphNodeType type = store.nodes[node].type;
      if (type == CU_GRAPH_NODE_TYPE_HOST) ++out;
      if (type == CU_GRAPH_NODE_TYPE_GRAPH) children.push_back(handle_as<CUgraphNode>(node));
    }
  }
  for (const CUgraphNode node : children) {
    CUgraph child = nullptr;
    if (const CUresult bad = cuGraphChildGraphNodeGetGraph(node, &child); bad != CUDA_SUCCESS) return bad;
    if (const CUresult bad = count_host_nodes(raw(child), out); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graph* made = nullptr;
  messages::cuGraphInstantiateWithFlags m;
  m.phGraphExec = tables().graph_execs.mint(made);
  if (m.phGraphExec == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = context_for_graph(raw(graph));
  m.hGraph = raw(graph);
  m.flags = flags;
  replies::cuGraphInstantiateWithFlags reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, current_context(), bytes, {}, nullptr, &own);
  if (result != CUDA_SUCCESS) {
    if (own == CUDA_SUCCESS) {
      messages::cuGraphExecDestroy end;
      end.hGraphExec = m.phGraphExec;
      static_cast<void>(destroy(tables().graph_execs, end.hGraphExec, end, made->context));
    } else {
      tables().graph_execs.drop(m.phGraphExec);
    }
    return result;
  }
  int host_nodes = 0;
  if (host_functions_are_used()) static_cast<void>(count_host_nodes(raw(graph), host_nodes));
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  ExecShadow& shadow = store.execs[m.phGraphExec];
  shadow.graph = raw(graph);
  shadow.host_nodes = host_nodes;
  if (const auto found = store.graphs.find(raw(graph)); found != store.graphs.end())
    shadow.user_objects.add(found->second.user_objects);
  *out = handle_as<CUgraphExec>(m.phGraphExec);
  return CUDA_SUCCESS;
}

CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo& info) {
  if (!known(Kind::graph_exec, exec) || !known(Kind::graph, graph)) return no_such_graph();
  messages::GraphUpdateExec m;
  m.exec = raw(exec);
  m.graph = raw(graph);
  replies::GraphUpdateExec reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  info.result = static_cast<CUgraphExecUpdateResult>(reply.result);
  if (reply.node != 0 || reply.from != 0) static_cast<void>(complete_graph(raw(graph)));
  if (is_graph_node(reply.node)) info.errorNode = handle_as<CUgraphNode>(reply.node);
  if (is_graph_node(reply.from)) info.errorFromNode = handle_as<CUgraphNode>(reply.from);
  return result;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuGraphInstantiate(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
CUresult cuGraphInstantiate_v2(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
CUresult cuGraphExecUpdate(CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*);

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  runtime().begin_if_over();
  return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return instantiate(phGraphExec, hGraph, 0);
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return api::cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr cuuint64_t upload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  const bool uploads = (instantiateParams->flags & upload) != 0;
  if (uploads && !known(Kind::stream, instantiateParams->hUploadStream)) return bad_handle(Kind::stream);
  CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags & ~upload);
  if (result == CUDA_SUCCESS && uploads)
    result = api::cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  instantiateParams->hErrNode_out = nullptr;
  return result;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  runtime().begin_if_over();
  if (!known(Kind::graph_exec, hGraphExec)) return no_such_graph();
  if (!known(Kind::stream, hStream)) return bad_handle(Kind::stream);
  int host_nodes = 0;
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    ExecShadow& shadow = store.execs[raw(hGraphExec)];
    shadow.launched = true;
    host_nodes = shadow.host_nodes;
  }
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (host_nodes != 0) let_held_up_go_first(worker_of_stream(hStream));
  messages::cuGraphLaunch m;
  m.hGraph = raw(hGraphExec);
  m.hStream = raw(hStream);
  return post(m, context, {}, nullptr, host_nodes);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const Graph* const object = tables().graph_execs.find(raw(hGraphExec));
  if (object == nullptr) return no_such_graph();
  ExecShadow gone;
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    if (const auto found = store.execs.find(raw(hGraphExec)); found != store.execs.end()) {
      gone = std::move(found->second);
      store.execs.erase(found);
    }
  }
  // What the graph's work uses must outlive launches that are under way.
  if (!gone.user_objects.empty() && gone.launched) static_cast<void>(api::cuCtxSynchronize());
  messages::cuGraphExecDestroy m;
  m.hGraphExec = raw(hGraphExec);
  const CUresult result = destroy(tables().graph_execs, m.hGraphExec, m, object->context);
  gone.user_objects.clear();
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resultInfo = {};
  return update(hGraphExec, hGraph, *resultInfo);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  if (updateResult_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = update(hGraphExec, hGraph, info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  *updateResult_out = info.result;
  return result;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::GraphMemoryAttribute m;
  m.device = device;
  m.attribute = attr;
  replies::GraphMemoryAttribute reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, any_context, bytes);
  if (result == CUDA_SUCCESS) std::memcpy(value, &reply.value, sizeof(reply.value));
  return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  cuuint64_t wanted = 1;
  if (value != nullptr) std::memcpy(&wanted, value, sizeof(wanted));
  if (wanted != 0 || (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
    return CUDA_ERROR_INVALID_VALUE;  // the high marks can be reset, nothing else
  messages::GraphResetMemoryAttribute m;
  m.device = device;
  m.attribute = attr;
  return post(m, any_context);
}

}  // namespace gpupool::client::api
