// What the API functions of graphs share: handles, and the form in which lists are given.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/graph/plan.h"

namespace softgpu::driver {

template <class Body>
CUresult graph_entry(Body&& body) {
  return entry([&]() -> CUresult {
    const UserObjectEnds after_the_lock;
    const gpupool::MutexLock lock(graph_mutex());
    body();
    return CUDA_SUCCESS;
  });
}

inline std::shared_ptr<Graph> graph_of(CUgraph handle) {
  return registry<Graph>().get(handle, CUDA_ERROR_INVALID_VALUE);
}

inline std::shared_ptr<GraphExec> exec_of(CUgraphExec handle) {
  return registry<GraphExec>().get(handle, CUDA_ERROR_INVALID_VALUE);
}

inline GraphNode* node_of(CUgraphNode handle) {
  auto* const node = reinterpret_cast<GraphNode*>(handle);
  require(Graph::is_live(node));
  return node;
}

inline CUgraphNode handle_of(GraphNode* node) {
  return reinterpret_cast<CUgraphNode>(node);
}

inline std::vector<GraphNode*> nodes_of(const Graph& graph, const CUgraphNode* handles, std::size_t count) {
  require(handles || count == 0);
  std::vector<GraphNode*> found;
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back(node_of(handles[i]));
    require(found.back()->graph == &graph);
    require(std::find(found.begin(), found.end() - 1, found.back()) == found.end() - 1);
  }
  return found;
}

inline std::vector<CUgraphEdgeData> edge_data(const CUgraphEdgeData* data, std::size_t count) {
  return data ? std::vector<CUgraphEdgeData>(data, data + count) : std::vector<CUgraphEdgeData>(count);
}

}  // namespace softgpu::driver
