// Graphs: building, reading.
#include <algorithm>

#include "softgpu/driver/context.h"
#include "softgpu/driver/copy.h"
#include "softgpu/driver/current_context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/graph_nodes.h"

using namespace softgpu::driver;

namespace {

template <class Body>
CUresult graph_entry(Body&& body) {
  return entry([&] {
    const std::lock_guard lock(Driver::get().graph_mutex);
    body();
  });
}

std::shared_ptr<Graph> graph_of(CUgraph handle) {
  return Driver::get().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
}

GraphNode* node_of(CUgraphNode handle) {
  require(handle != nullptr);
  return reinterpret_cast<GraphNode*>(handle);
}

CUgraphNode handle_of(GraphNode* node) {
  return reinterpret_cast<CUgraphNode>(node);
}

CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                  const std::function<Operation()>& make) {
  return graph_entry([&] {
    require(out != nullptr && (dependencies || count == 0));
    const auto into = graph_of(graph);
    std::vector<GraphNode*> after;
    for (std::size_t i = 0; i < count; ++i) {
      after.push_back(node_of(dependencies[i]));
      require(after.back()->graph == into.get());
    }
    Operation operation = make();
    *out = handle_of(into->add(operation.type, std::move(operation.parameters), std::move(operation.run),
                               std::move(after)));
  });
}

// The usual two-call protocol: the count alone, or as many as fit.
void give_nodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t* count) {
  require(count != nullptr);
  if (out) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
}

std::vector<GraphNode*> all_nodes(const Graph& graph) {
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

std::vector<GraphNode*> dependents_of(const GraphNode& node) {
  std::vector<GraphNode*> found;
  for (const auto& other : node.graph->nodes()) {
    if (std::find(other->after.begin(), other->after.end(), &node) != other->after.end()) {
      found.push_back(other.get());
    }
  }
  return found;
}

CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return graph_entry([&] {
    std::vector<GraphNode*> sources, targets;
    for (const auto& node : graph_of(graph)->nodes()) {
      for (GraphNode* before : node->after) {
        sources.push_back(before);
        targets.push_back(node.get());
      }
    }
    require(count != nullptr && !from == !to);
    std::size_t room = *count;
    give_nodes(sources, from, count);
    if (to) give_nodes(targets, to, &room);
  });
}

CUresult change_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count,
                      void (Graph::*change)(GraphNode*, GraphNode*)) {
  return graph_entry([&] {
    require(count == 0 || (from && to));
    const auto target = graph_of(graph);
    for (std::size_t i = 0; i < count; ++i) ((*target).*change)(node_of(from[i]), node_of(to[i]));
  });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return graph_entry([&] {
    require(phGraph != nullptr && flags == 0);
    *phGraph = Driver::get().graphs.add<CUgraph>(std::make_shared<Graph>());
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return graph_entry([&] { Driver::get().graphs.take(hGraph, CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return graph_entry([&] {
    require(phGraphClone != nullptr);
    *phGraphClone = Driver::get().graphs.add<CUgraph>(graph_of(originalGraph)->clone());
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  return graph_entry([&] {
    require(phNode != nullptr);
    for (const auto& node : graph_of(hClonedGraph)->nodes()) {
      if (node->clone_of == node_of(hOriginalNode)) {
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
  return get_edges(hGraph, from, to, numEdges);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                            size_t* numEdges) {
  const std::size_t room = edgeData && numEdges ? *numEdges : 0;
  std::fill_n(edgeData, room, CUgraphEdgeData{});
  return get_edges(hGraph, from, to, numEdges);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, &Graph::connect);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, &Graph::connect);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, &Graph::disconnect);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, size_t numDependencies) {
  return change_edges(hGraph, from, to, numDependencies, &Graph::disconnect);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return graph_entry([&] {
    GraphNode* node = node_of(hNode);
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

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, size_t* numDependencies) {
  return graph_entry([&] { give_nodes(node_of(hNode)->after, dependencies, numDependencies); });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  std::fill_n(edgeData, edgeData && numDependencies ? *numDependencies : 0, CUgraphEdgeData{});
  return cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return graph_entry([&] { give_nodes(dependents_of(*node_of(hNode)), dependentNodes, numDependentNodes); });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  std::fill_n(edgeData, edgeData && numDependentNodes ? *numDependentNodes : 0, CUgraphEdgeData{});
  return cuGraphNodeGetDependentNodes(hNode, dependentNodes, numDependentNodes);
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies,
                  [] { return Operation{CU_GRAPH_NODE_TYPE_EMPTY, std::monostate{}, nullptr}; });
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies,
                  [&] { return kernel_node(nodeParams); });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, [&] {
    require(copyParams != nullptr);
    return make_copy(*copyParams);
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, [&] {
    require(memsetParams != nullptr);
    return make_fill(*memsetParams);
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, [&] { return host_node(nodeParams); });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies,
                  [&] { return child_node(graph_of(childGraph)->clone()); });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                   size_t numDependencies, CUevent event) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, [&] {
    return Operation{CU_GRAPH_NODE_TYPE_EVENT_RECORD, EventRecord{Driver::get().events.get(event)}, nullptr};
  });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, CUevent event) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, [&] {
    return Operation{CU_GRAPH_NODE_TYPE_WAIT_EVENT, EventWait{Driver::get().events.get(event)}, nullptr};
  });
}
