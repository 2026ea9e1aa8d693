// Handlers of the messages that build graphs.
#include <cstring>

#include "generated/handlers.h"
#include "worker/handlers/graph_handles.h"

namespace gpupool::worker {
namespace {

using wire::Kind;

struct Dependencies {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;  // empty: all plain

  [[nodiscard]] const CUgraphEdgeData* edges() const { return data.empty() ? nullptr : data.data(); }
};

template <class T>
bool read_list(std::span<const std::byte> bytes, std::vector<T>& out) {
  if (bytes.size() % sizeof(T) != 0 || bytes.size() / sizeof(T) > wire::max_handles) return false;
  out.resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return true;
}

bool read_nodes(Call& x, std::span<const std::byte> bytes, std::vector<CUgraphNode>& out) {
  std::vector<std::uint64_t> values;
  if (!read_list(bytes, values)) return false;
  out.resize(values.size());
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (!x.handles.find(Kind::graph_node, values[n], out[n])) return false;
  }
  return true;
}

bool read_dependencies(Call& x, std::span<const std::byte> nodes, std::span<const std::byte> edges,
                       Dependencies& out) {
  return read_nodes(x, nodes, out.nodes) && read_list(edges, out.data) &&
         (out.data.empty() || out.data.size() == out.nodes.size());
}

template <class M>
CUresult add(Call& x, const M& m, graphs::NodeParams& params) {
  CUgraph graph = nullptr;
  Dependencies after;
  if (!x.handles.find(Kind::graph, m.graph, graph) || !x.handles.vacant(Kind::graph_node, m.node) ||
      !read_dependencies(x, m.dependencies, m.edges, after))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = decode_node(x, m.params, params); bad != CUDA_SUCCESS) return bad;
  const bool moves = params.params.type == CU_GRAPH_NODE_TYPE_GRAPH &&
                     params.params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  const std::uint64_t child = moves ? x.session.graphs.graph(params.params.graph.graph) : 0;
  if (moves && (child == m.graph || x.session.graphs.is_owned(child))) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t n = 0; n < params.bodies.size(); ++n) {
    for (std::size_t before = 0; before < n; ++before) {
      if (params.bodies[before] == params.bodies[n]) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!x.handles.vacant(Kind::graph, params.bodies[n])) return CUDA_ERROR_INVALID_HANDLE;
  }
  CUgraphNode node = nullptr;
  const CUresult result = x.api.cuGraphAddNode_v2_(&node, graph, after.nodes.data(), after.edges(),
                                                   after.nodes.size(), &params.params);
  if (result != CUDA_SUCCESS) return result;
  x.session.graphs.bind_node(m.node, node, m.graph);
  if (params.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) x.session.graphs.has_allocations = true;
  for (std::size_t n = 0; n < params.bodies.size(); ++n)
    x.session.graphs.bind_graph(params.bodies[n], params.params.conditional.phGraph_out[n], m.node);
  if (moves) x.session.graphs.give_to_node(child, m.node);
  return CUDA_SUCCESS;
}

template <class M>
CUresult set_exec_node(Call& x, const M& m) {
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  if (!x.handles.find(Kind::graph_exec, m.exec, exec) || !x.handles.find(Kind::graph_node, m.node, node))
    return CUDA_ERROR_INVALID_HANDLE;
  graphs::NodeParams params;
  if (const CUresult bad = decode_node(x, m.params, params); bad != CUDA_SUCCESS) return bad;
  return x.api.cuGraphExecNodeSetParams_(exec, node, &params.params);
}

template <class M, class Change>
CUresult change_edges(Call& x, const M& m, Change change) {
  CUgraph graph = nullptr;
  Dependencies to;
  std::vector<CUgraphNode> from;
  if (!x.handles.find(Kind::graph, m.graph, graph) || !read_nodes(x, m.from, from) ||
      !read_dependencies(x, m.to, m.edges, to) || from.size() != to.nodes.size())
    return CUDA_ERROR_INVALID_HANDLE;
  return change(graph, from.data(), to.nodes.data(), to.edges(), from.size());
}

}  // namespace

CUresult run_cuGraphCreate(Call& x, const messages::cuGraphCreate& m, replies::cuGraphCreate&) {
  if (!x.handles.vacant(Kind::graph, m.phGraph)) return CUDA_ERROR_INVALID_HANDLE;
  CUgraph graph = nullptr;
  const CUresult result = x.api.cuGraphCreate_(&graph, m.flags);
  if (result == CUDA_SUCCESS) x.session.graphs.bind_graph(m.phGraph, graph);
  return result;
}

CUresult run_cuGraphDestroy(Call& x, const messages::cuGraphDestroy& m, replies::cuGraphDestroy&) {
  CUgraph graph = nullptr;
  if (!x.handles.find(Kind::graph, m.hGraph, graph)) return CUDA_ERROR_INVALID_HANDLE;
  if (x.session.graphs.is_owned(m.hGraph)) return CUDA_ERROR_INVALID_VALUE;
  x.session.graphs.forget_graph(m.hGraph);
  return x.api.cuGraphDestroy_(graph);
}

CUresult run_GraphAddNode(Call& x, const messages::GraphAddNode& m, replies::GraphAddNode&) {
  graphs::NodeParams params;
  return add(x, m, params);
}

CUresult run_GraphAddAllocation(Call& x, const messages::GraphAddAllocation& m,
                                replies::GraphAddAllocation& reply) {
  graphs::NodeParams params;
  const CUresult result = add(x, m, params);
  if (result == CUDA_SUCCESS && params.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    reply.address = params.params.alloc.dptr;
  return result;
}

CUresult run_GraphSetNode(Call& x, const messages::GraphSetNode& m, replies::GraphSetNode&) {
  CUgraphNode node = nullptr;
  if (!x.handles.find(Kind::graph_node, m.node, node)) return CUDA_ERROR_INVALID_HANDLE;
  graphs::NodeParams params;
  if (const CUresult bad = decode_node(x, m.params, params); bad != CUDA_SUCCESS) return bad;
  return x.api.cuGraphNodeSetParams_(node, &params.params);
}

CUresult run_GraphSetExecNode(Call& x, const messages::GraphSetExecNode& m, replies::GraphSetExecNode&) {
  return set_exec_node(x, m);
}

CUresult run_GraphSetExecKernel(Call& x, const messages::GraphSetExecKernel& m,
                                replies::GraphSetExecKernel&) {
  return set_exec_node(x, m);
}

CUresult run_GraphAddEdges(Call& x, const messages::GraphAddEdges& m, replies::GraphAddEdges&) {
  return change_edges(x, m, x.api.cuGraphAddDependencies_v2_);
}

CUresult run_GraphRemoveEdges(Call& x, const messages::GraphRemoveEdges& m, replies::GraphRemoveEdges&) {
  return change_edges(x, m, x.api.cuGraphRemoveDependencies_v2_);
}

CUresult run_GraphDestroyNode(Call& x, const messages::GraphDestroyNode& m, replies::GraphDestroyNode&) {
  CUgraphNode node = nullptr;
  if (!x.handles.find(Kind::graph_node, m.node, node)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuGraphDestroyNode_(node);
  if (result == CUDA_SUCCESS) x.session.graphs.forget_node(m.node);
  return result;
}

CUresult run_GraphConditionalHandle(Call& x, const messages::GraphConditionalHandle& m,
                                    replies::GraphConditionalHandle& reply) {
  CUgraph graph = nullptr;
  CUcontext context = nullptr;
  if (!x.handles.find(Kind::graph, m.graph, graph) ||
      (m.context != 0 && !x.handles.find(Kind::context, m.context, context)))
    return CUDA_ERROR_INVALID_HANDLE;
  CUgraphConditionalHandle handle = 0;
  const CUresult result = x.api.cuGraphConditionalHandleCreate_(&handle, graph, context, m.value, m.flags);
  reply.handle = handle;
  return result;
}

CUresult run_GraphClone(Call& x, const messages::GraphClone& m, replies::GraphClone&) {
  CUgraph graph = nullptr, clone = nullptr;
  if (!x.handles.find(Kind::graph, m.graph, graph) || !x.handles.vacant(Kind::graph, m.clone))
    return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuGraphClone_(&clone, graph);
  if (result == CUDA_SUCCESS) x.session.graphs.bind_graph(m.clone, clone);
  return result;
}

CUresult run_CaptureIntoGraph(Call& x, const messages::CaptureIntoGraph& m, replies::CaptureIntoGraph&) {
  CUgraph graph = nullptr;
  CUstream stream = nullptr;
  Dependencies after;
  if (!x.handles.find(Kind::graph, m.graph, graph) || !x.handles.find(Kind::stream, m.stream, stream) ||
      !read_dependencies(x, m.dependencies, m.edges, after))
    return CUDA_ERROR_INVALID_HANDLE;
  x.waits();
  x.begins_capture(stream);
  const CUresult result = x.api.cuStreamBeginCaptureToGraph_(
      stream, graph, after.nodes.data(), after.edges(), after.nodes.size(), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result != CUDA_SUCCESS) return result;
  x.equipment.parking.obstacles.capture_began(stream);
  x.session.graphs.captures[m.stream] = graph;
  return CUDA_SUCCESS;
}

CUresult run_CaptureSetDependencies(Call& x, const messages::CaptureSetDependencies& m,
                                    replies::CaptureSetDependencies&) {
  CUstream stream = nullptr;
  Dependencies after;
  if (!x.handles.find(Kind::stream, m.stream, stream) ||
      !read_dependencies(x, m.dependencies, m.edges, after))
    return CUDA_ERROR_INVALID_HANDLE;
  return x.api.cuStreamUpdateCaptureDependencies_v2_(stream, after.nodes.data(), after.edges(),
                                                     after.nodes.size(), m.flags);
}

}  // namespace gpupool::worker
