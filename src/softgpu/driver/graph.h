// Graphs: nodes of recorded work with dependencies, and executable graphs made from them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "softgpu/driver/cuda_api.h"
#include "softgpu/driver/user_object.h"

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
using NodeParameters =
    std::variant<std::monostate, std::shared_ptr<const KernelLaunch>, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
                 HostCall, std::shared_ptr<Graph>, EventRecord, EventWait>;

struct GraphNode {
  GraphNode(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run, Graph* graph)
      : type(type), parameters(std::move(parameters)), run(std::move(run)), graph(graph) {}

  CUgraphNodeType type;
  NodeParameters parameters;
  std::function<void()> run;      // executes the node in the calling thread; empty: nothing to do
  std::vector<GraphNode*> after;  // dependencies, in the same graph
  Graph* graph;                   // owner
  unsigned local_id = 0;
  GraphNode* clone_of = nullptr;  // the node this one was cloned from
};
using GraphNodeRef = GraphNode*;

// Not thread safe by itself, like CUDA's graphs; the API layer locks.
class Graph {
 public:
  Graph();
  explicit Graph(const UserObjectReferences& user_objects);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  unsigned id() const { return id_; }
  GraphNode* add(CUgraphNodeType type, NodeParameters parameters, std::function<void()> run,
                 std::vector<GraphNode*> after);
  // Throws Error(INVALID_VALUE) if the edge is there, or leads to itself.
  void connect(GraphNode* from, GraphNode* to);
  void disconnect(GraphNode* from, GraphNode* to);
  void remove(GraphNode* node);
  const std::vector<std::unique_ptr<GraphNode>>& nodes() const { return nodes_; }
  // Dependencies first. Throws Error(INVALID_VALUE) for a cycle.
  std::vector<GraphNode*> ordered() const;
  std::shared_ptr<Graph> clone() const;

  UserObjectReferences user_objects;

 private:
  const unsigned id_;
  unsigned next_local_id_ = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes_;
};

// A snapshot of a graph that can be launched many times.
class GraphExec {
 public:
  GraphExec(const Graph& graph, unsigned long long flags);

  struct Step {
    const GraphNode* source;  // identity of the node it came from
    CUgraphNodeType type;
    NodeParameters parameters;
    std::function<void()> run;
    bool enabled = true;
  };
  unsigned id() const { return id_; }
  unsigned long long flags() const { return flags_; }
  // The step made from a node; throws Error(INVALID_VALUE) if there is none.
  Step& step(const GraphNode* node);
  // Takes over the parameters of a graph of the same shape; false if the shapes differ.
  bool update(const Graph& graph);
  // What one launch executes; taken at the time of the launch.
  std::vector<Step> steps() const;

 private:
  mutable std::mutex mutex_;
  const unsigned id_;
  const unsigned long long flags_;
  const UserObjectReferences user_objects_;
  std::vector<Step> steps_;
};

}  // namespace softgpu::driver
