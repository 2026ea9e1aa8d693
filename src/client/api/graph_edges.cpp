// The nodes of a graph and the edges between them, answered from what the client knows.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/graph_store.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies

namespace {

using wire::Kind;

struct Edges {
  std::vector<std::uint64_t> from, to;
  std::vector<CUgraphEdgeData> data;
};

// The usual two-call protocol: the count alone, or as many as fit.
void give(const std::vector<std::uint64_t>& nodes, CUgraphNode* out, std::size_t room) {
  for (std::size_t n = 0; out != nullptr && n < room; ++n)
    out[n] = n < nodes.size() ? handle_as<CUgraphNode>(nodes[n]) : nullptr;
}
CUresult give_nodes(const std::vector<std::uint64_t>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr || (out != nullptr && *count == 0)) return CUDA_ERROR_INVALID_VALUE;
  give(nodes, out, *count);
  *count = out != nullptr ? std::min(*count, nodes.size()) : nodes.size();
  return CUDA_SUCCESS;
}
/// Without a place for them, edges that say more than "after" cannot be told.
CUresult give_data(const std::vector<CUgraphEdgeData>& data, CUgraphEdgeData* out, bool has_place,
                   std::size_t room) {
  static constexpr CUgraphEdgeData plain{};
  for (std::size_t n = 0; out != nullptr && n < room; ++n) out[n] = n < data.size() ? data[n] : plain;
  if (out != nullptr || !has_place) return CUDA_SUCCESS;
  const bool lossless = std::all_of(data.begin(), data.end(), [](const CUgraphEdgeData& edge) {
    return std::memcmp(&edge, &plain, sizeof(plain)) == 0;
  });
  return lossless ? CUDA_SUCCESS : CUDA_ERROR_LOSSY_QUERY;
}

/// All edges of a complete graph.
Edges edges_of(GraphStore& store, std::uint64_t graph) REQUIRES(store.mutex);
Edges edges_of(GraphStore& store, std::uint64_t graph) {
  Edges edges;
  for (const std::uint64_t node : store.graphs[graph].nodes) {
    for (const GraphEdge& edge : store.nodes[node].after) {
      edges.from.push_back(edge.node);
      edges.to.push_back(node);
      edges.data.push_back(edge.data);
    }
  }
  return edges;
}

/// Calls `use(store)` with the graph complete and the mutex held.
template <class Use>
CUresult with_graph(std::uint64_t graph, Use use) NOT_ANALYSED;
template <class Use>
CUresult with_graph(std::uint64_t graph, Use use) {
  if (const CUresult bad = complete_graph(graph); bad != CUDA_SUCCESS) return bad;
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  if (!store.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  return use(store);
}

/// The graph of a node; 0 for none.
std::uint64_t graph_of(CUgraphNode node) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.nodes.find(raw(node));
  return found == store.nodes.end() ? 0 : found->second.graph;
}

CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                   std::size_t* count) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return with_graph(raw(graph), [&](GraphStore& store) REQUIRES(store.mutex) {
    const Edges edges = edges_of(store, raw(graph));
    if (const CUresult bad = give_data(edges.data, data, from != nullptr, *count); bad != CUDA_SUCCESS)
      return bad;
    give(edges.to, to, *count);
    return give_nodes(edges.from, from, count);
  });
}

CUresult get_dependencies(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count) {
  const std::uint64_t graph = graph_of(node);
  if (graph == 0) return no_such_graph();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_graph(graph, [&](GraphStore& store) REQUIRES(store.mutex) {
    Edges edges;
    for (const GraphEdge& edge : store.nodes[raw(node)].after) {
      edges.from.push_back(edge.node);
      edges.data.push_back(edge.data);
    }
    if (const CUresult bad = give_data(edges.data, data, out != nullptr, *count); bad != CUDA_SUCCESS)
      return bad;
    return give_nodes(edges.from, out, count);
  });
}

CUresult get_dependents(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count) {
  const std::uint64_t graph = graph_of(node);
  if (graph == 0) return no_such_graph();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_graph(graph, [&](GraphStore& store) REQUIRES(store.mutex) {
    const Edges all = edges_of(store, graph);
    Edges edges;
    for (std::size_t n = 0; n < all.from.size(); ++n) {
      if (all.from[n] != raw(node)) continue;
      edges.to.push_back(all.to[n]);
      edges.data.push_back(all.data[n]);
    }
    if (const CUresult bad = give_data(edges.data, data, out != nullptr, *count); bad != CUDA_SUCCESS)
      return bad;
    return give_nodes(edges.to, out, count);
  });
}

std::vector<GraphEdge>::iterator edge_between(GraphStore& store, std::uint64_t from, std::uint64_t to)
    REQUIRES(store.mutex);
std::vector<GraphEdge>::iterator edge_between(GraphStore& store, std::uint64_t from, std::uint64_t to) {
  auto& after = store.nodes[to].after;
  return std::find_if(after.begin(), after.end(), [&](const GraphEdge& edge) { return edge.node == from; });
}

template <class M>
CUresult change_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, std::size_t count, bool adds) {
  if (!known(Kind::graph, graph)) return no_such_graph();
  if (count == 0) return CUDA_SUCCESS;
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult checked = with_graph(raw(graph), [&](GraphStore& store) REQUIRES(store.mutex) {
    for (std::size_t n = 0; n < count; ++n) {
      const auto first = store.nodes.find(raw(from[n])), second = store.nodes.find(raw(to[n]));
      if (first == store.nodes.end() || second == store.nodes.end() || first == second ||
          first->second.graph != raw(graph) || second->second.graph != raw(graph))
        return CUDA_ERROR_INVALID_VALUE;
      const bool there = edge_between(store, raw(from[n]), raw(to[n])) != second->second.after.end();
      if (there == adds) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
  if (checked != CUDA_SUCCESS) return checked;
  M m;
  m.graph = raw(graph);
  m.from = std::as_bytes(std::span(from, count));  // handles travel as they are
  m.to = std::as_bytes(std::span(to, count));
  if (data != nullptr) m.edges = std::as_bytes(std::span(data, count));
  if (const CUresult bad = post(m, current_context()); bad != CUDA_SUCCESS) return bad;
  return with_graph(raw(graph), [&](GraphStore& store) REQUIRES(store.mutex) {
    for (std::size_t n = 0; n < count; ++n) {
      const auto edge = edge_between(store, raw(from[n]), raw(to[n]));
      auto& after = store.nodes[raw(to[n])].after;
      if (adds && edge == after.end()) {
        after.push_back({raw(from[n]), data == nullptr ? CUgraphEdgeData{} : data[n]});
      } else if (!adds && edge != after.end()) {
        after.erase(edge);
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

namespace gpupool::client::api {

CUresult cuGraphGetEdges(CUgraph, CUgraphNode*, CUgraphNode*, size_t*);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode*, size_t*);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode*, size_t*);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  return with_graph(raw(hGraph), [&](GraphStore& store) REQUIRES(store.mutex) {
    return give_nodes(store.graphs[raw(hGraph)].nodes, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  if (!known(Kind::graph, hGraph)) return no_such_graph();
  return with_graph(raw(hGraph), [&](GraphStore& store) REQUIRES(store.mutex) {
    std::vector<std::uint64_t> roots = store.graphs[raw(hGraph)].nodes;
    std::erase_if(roots,
                  [&](std::uint64_t node) REQUIRES(store.mutex) { return !store.nodes[node].after.empty(); });
    return give_nodes(roots, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return get_edges(hGraph, from, to, nullptr, numEdges);
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) {
  return get_edges(hGraph, from, to, edgeData, numEdges);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) {
  return get_dependencies(hNode, dependencies, nullptr, numDependencies);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return get_dependencies(hNode, dependencies, edgeData, numDependencies);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return get_dependents(hNode, dependentNodes, nullptr, numDependentNodes);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return get_dependents(hNode, dependentNodes, edgeData, numDependentNodes);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return change_edges<messages::GraphAddEdges>(hGraph, from, to, nullptr, numDependencies, true);
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return change_edges<messages::GraphAddEdges>(hGraph, from, to, edgeData, numDependencies, true);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return change_edges<messages::GraphRemoveEdges>(hGraph, from, to, nullptr, numDependencies, false);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return change_edges<messages::GraphRemoveEdges>(hGraph, from, to, edgeData, numDependencies, false);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  const std::uint64_t graph = graph_of(hNode);
  if (graph == 0) return no_such_graph();
  // Who comes after the node has to be known here before it goes.
  if (const CUresult bad = complete_graph(graph); bad != CUDA_SUCCESS) return bad;
  Ended ended;
  {
    GraphStore& store = graph_store();
    const MutexLock lock(store.mutex);
    end_node(store, raw(hNode), ended);
  }
  messages::GraphDestroyNode m;
  m.node = raw(hNode);
  const CUresult result = post(m, context_for_graph(graph));
  ended.give_back();
  return result;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  GraphStore& store = graph_store();
  const MutexLock lock(store.mutex);
  const auto found = store.nodes.find(raw(hNode));
  if (found == store.nodes.end()) return no_such_graph();
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = found->second.type;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph* phGraph) {
  const std::uint64_t graph = graph_of(hNode);
  if (graph == 0) return no_such_graph();
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = handle_as<CUgraph>(graph);
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api
