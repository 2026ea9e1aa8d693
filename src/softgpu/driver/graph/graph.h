// Graphs: nodes of recorded work with dependencies.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/graph/memory.h"
#include "softgpu/driver/graph/user_object.h"

namespace softgpu::driver {

class Context;
class Event;
class Graph;
struct KernelLaunch;

struct HostCall {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct EventRecord {
  std::shared_ptr<Event> event;
};
struct EventWait {
  std::shared_ptr<Event> event;
};
struct MemoryAllocate {
  std::shared_ptr<GraphAllocation> allocation;
  CUmemPoolProps properties{};
  std::vector<CUmemAccessDesc> access;
};
struct MemoryFree {
  std::shared_ptr<GraphAllocation> allocation;
};
struct BatchOperation {
  std::vector<CUstreamBatchMemOpParams> entries;
  unsigned flags = 0;
};
struct Conditional {
  std::shared_ptr<ConditionalValue> value;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<std::shared_ptr<Graph>> bodies;
  std::vector<CUgraph> handles;  // of the bodies: what the program is given
};
using NodeParameters = std::variant<std::monostate, std::shared_ptr<const KernelLaunch>, CUDA_MEMCPY3D,
                                    CUDA_MEMSET_NODE_PARAMS, HostCall, std::shared_ptr<Graph>, EventRecord,
                                    EventWait, MemoryAllocate, MemoryFree, BatchOperation, Conditional>;

struct GraphNode {
  GraphNode(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run, Graph* graph);

  CUgraphNodeType type;
  NodeParameters parameters;
  NodeParameters parameters_before;   // they were last set: programs may still hold pointers into them
  std::function<void()> run;          // executes the node in the calling thread; empty: nothing to do
  std::vector<GraphNode*> after;      // dependencies, in the same graph
  std::vector<CUgraphEdgeData> data;  // one per dependency
  Graph* graph;                       // owner
  unsigned local_id = 0;
  std::uint64_t id;            // never given twice: what an executable graph knows a node by
  std::uint64_t clone_of = 0;  // id of the node this one was cloned from
  CUcontext context = nullptr;
  std::map<int, CUlaunchAttributeValue> attributes;  // of a kernel node
};

// Not thread safe by itself, like CUDA's graphs; the API layer locks.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  unsigned id() const { return id_; }
  GraphNode* add(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run,
                 std::vector<GraphNode*> after, std::vector<CUgraphEdgeData> data = {});
  // Throws Error(INVALID_VALUE) if the edge is there, or leads to itself.
  void connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data = {});
  void disconnect(GraphNode* from, GraphNode* to);
  void remove(GraphNode* node);
  const std::vector<std::unique_ptr<GraphNode>>& nodes() const { return nodes_; }
  // Dependencies first. Throws Error(INVALID_VALUE) for a cycle.
  std::vector<GraphNode*> ordered() const;
  // With copies of its child graphs. Throws Error(NOT_SUPPORTED) where there are allocations.
  std::shared_ptr<Graph> clone() const;
  bool has_memory_nodes() const;
  // Is it this graph, or one inside of it?
  bool holds(const Graph& other) const;

  // A live node of any graph? The handle is the node's address; a stale one must not be followed.
  static bool is_live(const GraphNode* node);

  UserObjectReferences user_objects;
  std::vector<std::shared_ptr<ConditionalValue>> conditionals;
  bool embedded = false;  // part of a node: ends with it, not with cuGraphDestroy

 private:
  explicit Graph(const UserObjectReferences& user_objects);

  const unsigned id_;
  unsigned next_local_id_ = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes_;
};

// Serialises changes of graphs, which CUDA leaves to the program; cheap, and no crash if the program forgets.
gpupool::Mutex& graph_mutex();

unsigned new_graph_id();
// Makes the handle of a graph that a node owns known, until the node is gone.
CUgraph embed(const std::shared_ptr<Graph>& graph);

}  // namespace softgpu::driver
