// Graphs: making, cloning, and the edges between nodes.
#include <cstdio>
#include <cstring>

#include "softgpu/driver/api/graph_entry.h"

using namespace softgpu::driver;

namespace {

struct Edges {
  std::vector<GraphNode*> from, to;
  std::vector<CUgraphEdgeData> data;
};

// The usual two-call protocol: the count alone, or as many as fit. Without a place for them, edges that say
// more than "after" cannot be told.
void give(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t room) {
  for (std::size_t i = 0; out && i < room; ++i) out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
}
void give_nodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t* count) {
  require(count != nullptr && (out == nullptr || *count != 0));
  give(nodes, out, *count);
  *count = out ? std::min(*count, nodes.size()) : nodes.size();
}
void give_data(const std::vector<CUgraphEdgeData>& data, CUgraphEdgeData* out, bool has_place,
               std::size_t room) {
  if (out) {
    for (std::size_t i = 0; i < room; ++i) out[i] = i < data.size() ? data[i] : CUgraphEdgeData{};
  } else if (has_place) {
    constexpr CUgraphEdgeData plain{};
    for (const CUgraphEdgeData& edge : data)
      require(std::memcmp(&edge, &plain, sizeof(plain)) == 0, CUDA_ERROR_LOSSY_QUERY);
  }
}

std::vector<GraphNode*> all_nodes(const Graph& graph) {
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

Edges edges_of(const Graph& graph) {
  Edges edges;
  for (const auto& node : graph.nodes()) {
    for (std::size_t i = 0; i < node->after.size(); ++i) {
      edges.from.push_back(node->after[i]);
      edges.to.push_back(node.get());
      edges.data.push_back(node->data[i]);
    }
  }
  return edges;
}

CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                   std::size_t* count) {
  return graph_entry([&] {
    const Edges edges = edges_of(*graph_of(graph));
    require(count != nullptr && !from == !to);
    give_data(edges.data, data, from != nullptr, *count);
    give(edges.to, to, *count);
    give_nodes(edges.from, from, count);
  });
}

CUresult get_dependencies(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count) {
  return graph_entry([&] {
    const GraphNode* const node = node_of(handle);
    require(count != nullptr);
    give_data(node->data, data, out != nullptr, *count);
    give_nodes(node->after, out, count);
  });
}

CUresult get_dependents(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count) {
  return graph_entry([&] {
    const GraphNode* const node = node_of(handle);
    require(count != nullptr);
    const Edges all = edges_of(*node->graph);
    Edges found;
    for (std::size_t i = 0; i < all.from.size(); ++i) {
      if (all.from[i] != node) continue;
      found.to.push_back(all.to[i]);
      found.data.push_back(all.data[i]);
    }
    give_data(found.data, data, out != nullptr, *count);
    give_nodes(found.to, out, count);
  });
}

CUresult add_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                   std::size_t count) {
  return graph_entry([&] {
    require(count == 0 || (from && to));
    const auto target = graph_of(graph);
    for (std::size_t i = 0; i < count; ++i)
      target->connect(node_of(from[i]), node_of(to[i]), data ? data[i] : CUgraphEdgeData{});
  });
}

CUresult remove_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return graph_entry([&] {
    require(count == 0 || (from && to));
    const auto target = graph_of(graph);
    require(!target->has_memory_nodes(), CUDA_ERROR_NOT_SUPPORTED);
    for (std::size_t i = 0; i < count; ++i) target->disconnect(node_of(from[i]), node_of(to[i]));
  });
}

const char* type_name(CUgraphNodeType type) {
  static constexpr const char* names[] = {
      "KERNEL",       "MEMCPY",       "MEMSET",           "HOST",           "GRAPH",     "EMPTY",
      "WAIT_EVENT",   "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE",
      "BATCH_MEM_OP", "CONDITIONAL"};
  return static_cast<std::size_t>(type) < std::size(names) ? names[type] : "OTHER";
}

void print_dot(std::FILE* out, const Graph& graph) {
  std::fprintf(out, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", graph.id(), graph.id());
  for (const auto& node : graph.nodes()) {
    std::fprintf(out, "\"graph_%u_node_%u\"[label=\"%u\\n%s\"]\n", graph.id(), node->local_id, node->local_id,
                 type_name(node->type));
    if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&node->parameters)) print_dot(out, **child);
    if (const auto* conditional = std::get_if<Conditional>(&node->parameters)) {
      for (const auto& body : conditional->bodies) print_dot(out, *body);
    }
  }
  for (const auto& node : graph.nodes()) {
    for (const GraphNode* before : node->after) {
      std::fprintf(out, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\"\n", graph.id(), before->local_id,
                   graph.id(), node->local_id);
    }
  }
  std::fputs("}\n", out);
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return graph_entry([&] {
    require(phGraph != nullptr && flags == 0);
    *phGraph = registry<Graph>().add<CUgraph>(std::make_shared<Graph>());
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return graph_entry([&] {
    require(!graph_of(hGraph)->embedded);
    registry<Graph>().take(hGraph, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return graph_entry([&] {
    require(phGraphClone != nullptr);
    *phGraphClone = registry<Graph>().add<CUgraph>(graph_of(originalGraph)->clone());
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  return graph_entry([&] {
    require(phNode != nullptr);
    const std::uint64_t original = node_of(hOriginalNode)->id;
    for (const auto& node : graph_of(hClonedGraph)->nodes()) {
      if (node->clone_of == original) {
        *phNode = handle_of(node.get());
        return;
      }
    }
    fail(CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuGraphGetId(CUgraph hGraph, unsigned int* graphId) {
  return graph_entry([&] {
    require(graphId != nullptr);
    *graphId = graph_of(hGraph)->id();
  });
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  return graph_entry([&] {
    require(path != nullptr);
    const auto graph = graph_of(hGraph);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path, "w"), &std::fclose);
    require(out != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
    std::fputs("digraph dot {\n", out.get());
    print_dot(out.get(), *graph);
    std::fputs("}\n", out.get());
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return graph_entry([&] { give_nodes(all_nodes(*graph_of(hGraph)), nodes, numNodes); });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return graph_entry([&] {
    auto nodes = all_nodes(*graph_of(hGraph));
    std::erase_if(nodes, [](const GraphNode* node) { return !node->after.empty(); });
    give_nodes(nodes, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return get_edges(hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) {
  return get_edges(hGraph, from, to, edgeData, numEdges);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return add_edges(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return add_edges(hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return remove_edges(hGraph, from, to, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, size_t numDependencies) {
  return remove_edges(hGraph, from, to, numDependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return graph_entry([&] {
    GraphNode* node = node_of(hNode);
    require(!node->graph->has_memory_nodes(), CUDA_ERROR_NOT_SUPPORTED);
    node->graph->remove(node);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return graph_entry([&] {
    require(type != nullptr);
    *type = node_of(hNode)->type;
  });
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return graph_entry([&] {
    require(phGraph != nullptr);
    *phGraph = reinterpret_cast<CUgraph>(node_of(hNode)->graph);
  });
}

CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int* nodeId) {
  return graph_entry([&] {
    require(nodeId != nullptr);
    *nodeId = node_of(hNode)->local_id;
  });
}

CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long* toolsNodeId) {
  return graph_entry([&] {
    require(toolsNodeId != nullptr);
    *toolsNodeId = node_of(hNode)->id;
  });
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
