// Nodes of graphs: adding, reading, changing.
#include <cuda.h>

#include <cstring>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/graph_memory.h"
#include "client/objects/graph_params.h"
#include "client/objects/graph_store.h"
#include "generated/client_api.h"
#define GRAPH_EXPORT
#define GRAPH_FUNCTIONS namespace gpupool::client::api
#include "shared_api/typed_node_exports.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

using wire::Kind;

/// The dependencies as the wire has them; they must be different nodes of `graph`.
CUresult take_dependencies(std::uint64_t graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                           std::size_t count, std::vector<GraphEdge>& out) {
  if (nodes == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  for (std::size_t n = 0; n < count; ++n) {
    const auto found = store.nodes.find(raw(nodes[n]));
    if (found == store.nodes.end() || found->second.graph != graph) return no_such_graph();
    for (const GraphEdge& edge : out) {
      if (edge.node == raw(nodes[n])) return CUDA_ERROR_INVALID_VALUE;
    }
    out.push_back({raw(nodes[n]), data == nullptr ? CUgraphEdgeData{} : data[n]});
  }
  return CUDA_SUCCESS;
}

/// A node that is being added: given back unless it stays.
struct NewNode {
  std::uint64_t handle = mint_node();
  std::vector<std::uint64_t> bodies;
  NodeShadow shadow;
  bool kept = false;

  NewNode() = default;
  NewNode(const NewNode&) = delete;
  NewNode& operator=(const NewNode&) = delete;
  ~NewNode() {
    if (kept) return;
    for (const std::uint64_t body : bodies) drop_graph(body);
    if (handle != 0) drop_node(handle);
  }
};

template <class M>
void fill(M& m, const NewNode& node, const std::vector<std::uint64_t>& dependencies,
          const std::vector<CUgraphEdgeData>& edges) {
  m.graph = node.shadow.graph;
  m.node = node.handle;
  m.dependencies = std::as_bytes(std::span(dependencies));
  m.edges = std::as_bytes(std::span(edges));
  m.params = node.shadow.params;
}

CUresult send(NewNode& node, CUgraphNodeParams& params, bool with_data) {
  std::vector<std::uint64_t> dependencies;
  std::vector<CUgraphEdgeData> edges;
  for (const GraphEdge& edge : node.shadow.after) {
    dependencies.push_back(edge.node);
    if (with_data) edges.push_back(edge.data);
  }
  if (params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    messages::GraphAddNode m;
    fill(m, node, dependencies, edges);
    return post(m, current_context());
  }
  messages::GraphAddAllocation m;
  fill(m, node, dependencies, edges);
  replies::GraphAddAllocation reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, current_context(), bytes, {}, nullptr, &own);
  if (own == CUDA_SUCCESS && result != CUDA_SUCCESS) {
    // The node is there although the program hears of an earlier error.
    messages::GraphDestroyNode end;
    end.node = node.handle;
    static_cast<void>(post(end, current_context()));
  }
  if (result != CUDA_SUCCESS) return result;
  params.alloc.dptr = reply.address;
  remember_graph_memory(reply.address, params.alloc.bytesize,
                        worker_of_context(context_for_graph(node.shadow.graph)).first_device);
  return encode_params(node.shadow.graph, params, node.bodies, node.shadow.params);
}

CUresult find_node(CUgraphNode node, NodeShadow& out) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.nodes.find(raw(node));
  if (found == store.nodes.end()) return no_such_graph();
  out.graph = found->second.graph;
  out.type = found->second.type;
  out.params = found->second.params;
  out.given = found->second.given;
  out.graphs = found->second.graphs;
  return CUDA_SUCCESS;
}

/// The graph that a child graph node owns, bound when it is first asked for.
CUresult child_of(CUgraphNode node, std::uint64_t graph, std::uint64_t& out) {
  const std::uint64_t made = mint_graph(raw(node), false, context_for_graph(graph));
  if (made == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  messages::GraphOfChild m;
  m.node = raw(node);
  m.graph = made;
  const CUresult result = post(m, current_context());
  GraphStore& store = graph_store();
  MutexLock lock(store.mutex);
  const auto found = store.nodes.find(raw(node));
  if (result == CUDA_SUCCESS && found != store.nodes.end()) {
    found->second.graphs = {made};
    out = made;
    return CUDA_SUCCESS;
  }
  lock.unlock();
  drop_graph(made);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult read_params(CUgraphNode node, std::vector<std::byte>& out) {
  messages::GraphReadNode m;
  m.node = raw(node);
  replies::GraphReadNode reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  if (result == CUDA_SUCCESS) out.assign(reply.params.begin(), reply.params.end());
  return result;
}

/// The graph at the top of those that a node is part of.
std::uint64_t root_of(GraphStore& store, std::uint64_t graph) REQUIRES(store.mutex);
std::uint64_t root_of(GraphStore& store, std::uint64_t graph) {
  for (auto found = store.graphs.find(graph); found != store.graphs.end() && found->second.owner != 0;
       found = store.graphs.find(graph)) {
    const auto owner = store.nodes.find(found->second.owner);
    if (owner == store.nodes.end()) break;
    graph = owner->second.graph;
  }
  return graph;
}

}  // namespace

namespace graph_api {

CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                  const CUgraphEdgeData* data, size_t count, CUgraphNodeParams& params) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = prepare_params(raw(graph), params); bad != CUDA_SUCCESS) return bad;
  NewNode node;
  if (node.handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  node.shadow.graph = raw(graph);
  node.shadow.type = params.type;
  if (const CUresult bad = take_dependencies(raw(graph), dependencies, data, count, node.shadow.after);
      bad != CUDA_SUCCESS)
    return bad;
  if (params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    for (unsigned n = 0; n < params.conditional.size && n < graphs::max_bodies; ++n) {
      node.bodies.push_back(mint_graph(node.handle, true, context_for_graph(raw(graph))));
      if (node.bodies.back() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (const CUresult bad = encode_params(raw(graph), params, node.bodies, node.shadow.params);
      bad != CUDA_SUCCESS)
    return bad;
  if (const CUresult bad = send(node, params, data != nullptr); bad != CUDA_SUCCESS) return bad;

  GraphStore& store = graph_store();
  {
    const MutexLock lock(store.mutex);
    node.shadow.graphs = node.bodies;
    GraphShadow& into = store.graphs[raw(graph)];
    into.nodes.push_back(node.handle);
    if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      GraphShadow& child = store.graphs[raw(params.graph.graph)];
      if (params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        child.owner = node.handle;
        node.shadow.graphs = {raw(params.graph.graph)};
      } else {
        into.user_objects.add(child.user_objects);
      }
    }
    store.nodes[node.handle] = std::move(node.shadow);
    node.kept = true;
  }
  *out = handle_as<CUgraphNode>(node.handle);
  if (params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_SUCCESS;
  CUgraphNodeParams stored;
  const CUresult result = get_node(*out, stored);
  if (result == CUDA_SUCCESS) params.conditional.phGraph_out = stored.conditional.phGraph_out;
  return result;
}

CUresult get_node(CUgraphNode handle, CUgraphNodeParams& params) {
  NodeShadow node;
  if (const CUresult bad = find_node(handle, node); bad != CUDA_SUCCESS) return bad;
  if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    std::uint64_t child = node.graphs.empty() ? 0 : node.graphs[0];
    if (child == 0) {
      if (const CUresult bad = child_of(handle, node.graph, child); bad != CUDA_SUCCESS) return bad;
    }
    params = graph_api::child(handle_as<CUgraph>(child));
    return CUDA_SUCCESS;
  }
  if (!node.given) {
    if (node.params.empty()) {
      if (const CUresult bad = read_params(handle, node.params); bad != CUDA_SUCCESS) return bad;
    }
    node.given = std::make_shared<graphs::NodeParams>();
    wire::Reader in(node.params);
    ClientHandles handles(worker_of_context(context_for_graph(node.graph)));
    if (const CUresult bad = graphs::decode(in, handles, *node.given); bad != CUDA_SUCCESS) return bad;
    if (node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      for (const std::uint64_t body : node.given->bodies)
        node.given->graphs.push_back(handle_as<CUgraph>(body));
      node.given->params.conditional.phGraph_out = node.given->graphs.data();
    }
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    const auto found = store.nodes.find(raw(handle));
    if (found == store.nodes.end()) return CUDA_ERROR_INVALID_VALUE;
    found->second.params = node.params;
    found->second.given = node.given;
  }
  params = node.given->params;
  return CUDA_SUCCESS;
}

CUresult set_node(CUgraphNode handle, CUgraphNodeParams& params) {
  NodeShadow node;
  if (const CUresult bad = find_node(handle, node); bad != CUDA_SUCCESS) return bad;
  if (node.type != params.type) return CUDA_ERROR_INVALID_VALUE;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  if (const CUresult bad = prepare_params(node.graph, params); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = encode_params(node.graph, params, {}, node.params); bad != CUDA_SUCCESS)
    return bad;
  messages::GraphSetNode m;
  m.node = raw(handle);
  m.params = node.params;
  if (const CUresult bad = post(m, current_context()); bad != CUDA_SUCCESS) return bad;
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.nodes.find(raw(handle));
  if (found == store.nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  found->second.params = std::move(node.params);
  if (found->second.given) found->second.given_before = std::move(found->second.given);
  found->second.given.reset();
  return CUDA_SUCCESS;
}

CUresult set_exec_node(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams& params) {
  if (!known(Kind::graph_exec, exec)) return no_such_graph();
  NodeShadow node;
  if (const CUresult bad = find_node(handle, node); bad != CUDA_SUCCESS) return bad;
  if (node.type != params.type) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = prepare_params(node.graph, params); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = encode_params(node.graph, params, {}, node.params); bad != CUDA_SUCCESS)
    return bad;
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    {
      GraphStore& store = graph_store();
      const MutexLock lock(store.mutex);
      if (store.execs[raw(exec)].graph != root_of(store, node.graph)) return CUDA_ERROR_INVALID_VALUE;
    }
    messages::GraphSetExecKernel m;
    m.exec = raw(exec);
    m.node = raw(handle);
    m.params = node.params;
    return post(m, current_context());
  }
  messages::GraphSetExecNode m;
  m.exec = raw(exec);
  m.node = raw(handle);
  m.params = node.params;
  replies::GraphSetExecNode reply;
  std::vector<std::byte> bytes;
  return ask(m, reply, current_context(), bytes);
}

}  // namespace graph_api

namespace gpupool::client::api {

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  NodeShadow node;
  if (const CUresult bad = find_node(hNode, node); bad != CUDA_SUCCESS) return bad;
  if (value == nullptr || node.type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  messages::GraphSetKernelAttribute m;
  m.node = raw(hNode);
  m.attribute = attr;
  m.value = std::as_bytes(std::span(value, 1));
  return post(m, current_context());
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  NodeShadow node;
  if (const CUresult bad = find_node(hNode, node); bad != CUDA_SUCCESS) return bad;
  if (value_out == nullptr || node.type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  messages::GraphKernelAttribute m;
  m.node = raw(hNode);
  m.attribute = attr;
  replies::GraphKernelAttribute reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  if (result != CUDA_SUCCESS) return result;
  if (reply.value.size() != sizeof(*value_out)) return CUDA_ERROR_UNKNOWN;
  std::memcpy(value_out, reply.value.data(), sizeof(*value_out));
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags) {
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  if (pHandle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ctx != nullptr && !known(Kind::context, ctx)) return bad_handle(Kind::context);
  messages::GraphConditionalHandle m;
  m.graph = raw(hGraph);
  m.context = raw(ctx);
  m.value = defaultLaunchValue;
  m.flags = flags;
  replies::GraphConditionalHandle reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(m, reply, current_context(), bytes);
  if (result == CUDA_SUCCESS) *pHandle_out = reply.handle;
  return result;
}

}  // namespace gpupool::client::api
